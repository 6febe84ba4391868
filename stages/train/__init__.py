"""The train stage: runs a job under its deployment and writes what was measured."""
