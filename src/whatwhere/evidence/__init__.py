"""Experiments on what tutorials and papers claim: statements, what was measured, and verdicts."""
