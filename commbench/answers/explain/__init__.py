"""`commbench explain`: the figures of a row, and how each is computed."""
