"""The deploy stage."""
