"""The same measurement under several settings, in turn. Imports analysis and below."""
