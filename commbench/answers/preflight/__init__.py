"""Which nodes of an allocation may take part in a job, found out before it starts."""
