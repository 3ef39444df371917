"""Values with their 95 % intervals: arithmetic, ratios, and what an interval allows to say."""
