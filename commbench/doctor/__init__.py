"""Is this host in the way of measuring with CPU ranks? Imports launch and the layers below it."""
