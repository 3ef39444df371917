"""Is this host in the way of measuring, and what would a remedy change? Imports launch, analysis
and below, and of the worker only what settles a rank."""
