"""The NumPy front end: a plain NumPy function, run once on traced values, becomes a module."""
