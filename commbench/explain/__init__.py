"""`commbench explain` and `links`: figures of a row in sentences."""
