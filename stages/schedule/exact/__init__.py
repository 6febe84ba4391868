"""Proofs: the best plan and how far below it no plan can lie."""
