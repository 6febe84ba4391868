"""How long a plan takes and what memory it needs: pure formulas, one file a subject."""
