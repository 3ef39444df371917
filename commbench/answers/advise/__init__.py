"""`commbench advise`: what the rows of runs say about bucket sizes, forms of calls and settings."""
