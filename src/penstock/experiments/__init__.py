"""The evaluations of the published systems, run again: cases, published values, verdicts."""
