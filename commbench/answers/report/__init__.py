"""`commbench report`: one file about runs, comparisons, checks and sweeps, as HTML or Markdown."""
