"""Pairs of ranks: the matrix of what each reached, which part is slow, and how it is shown."""
