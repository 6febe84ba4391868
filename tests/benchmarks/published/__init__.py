"""The cost model against published measurements: ``python -m tests.benchmarks.published`` writes ``infra/docs/accuracy.md``."""
