"""What measures: each probe is a process of its own with a deadline, so that one that hangs costs its own answer and nothing else."""
