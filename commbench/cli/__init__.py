"""The command line: one file per command, each parses, calls one function and prints."""

import gc

# Most commands are short and make little garbage. Looking for it would take 7 % of their time.
gc.set_threshold(50_000)
