"""Files that nccl-tests wrote, as JSON or as text."""
