"""What the load will be: one contract, one module per forecast, an explicit registry."""
