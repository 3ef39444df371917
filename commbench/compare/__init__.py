"""Two runs side by side: rows that go together, ratios with intervals, verdicts."""
