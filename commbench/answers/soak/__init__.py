"""What a soak found: wrong results, drift, slow minutes."""
