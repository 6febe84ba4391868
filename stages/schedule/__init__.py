"""The schedule stage."""
