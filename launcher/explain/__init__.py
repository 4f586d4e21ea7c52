"""Why each collective is there: reasons, alternatives, verified remedies, warnings."""
