"""The order of the stages, how each is launched, Prefect, and the command line."""
