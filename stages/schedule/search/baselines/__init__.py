"""What the scheduler is compared with: other systems' methods and plain search, behind the solvers' interface."""
