"""`commbench compare`: matches the rows of two runs, computes ratios with intervals, decides
verdicts."""
