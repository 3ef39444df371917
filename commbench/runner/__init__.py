"""One run from its options to its record. Prints nothing: a RunListener is told."""
