"""Predicted against measured: errors, verdict, the factors the next plan uses, and the report of the run."""
