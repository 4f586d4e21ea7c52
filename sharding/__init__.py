"""The algebra of shardings, factor rules and propagation."""
