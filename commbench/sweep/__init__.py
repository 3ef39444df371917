"""The same measurement under several settings. Imports runner and the layers below."""
