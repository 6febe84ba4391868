"""Finding a plan: the space (levels 1 to 5), evolution inside an arm, halving over arms, and a random baseline."""
