"""The profile stage."""
