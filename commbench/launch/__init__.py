"""How ranks come to life, and what devices and backends there are: found, never guessed."""
