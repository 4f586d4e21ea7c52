"""Plans to begin with, which differ in the whole."""
