"""What a soak found: right or wrong, steady or not, and since when."""
