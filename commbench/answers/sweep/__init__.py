"""The same measurement under several settings."""
