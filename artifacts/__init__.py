"""The ground floor: the documents the stages hand to each other, and the store that keeps them."""
