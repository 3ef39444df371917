"""`commbench expect`: the bandwidth that others measured, and the most that links allow."""
