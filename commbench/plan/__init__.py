"""What to measure: a plan, its cases, and the tables behind them."""
