"""How unit costs are raised after a round that missed its target: one contract, one module each, a registry."""
