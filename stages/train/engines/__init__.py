"""What can run a training: :mod:`base` says what an engine is, one package an engine."""
