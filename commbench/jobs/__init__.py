"""Text that starts a run on several nodes: batch scripts and manifests. Imports errors alone."""
