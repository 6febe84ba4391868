"""The five stages. No stage imports another; they meet in the documents of ``artifacts``."""
