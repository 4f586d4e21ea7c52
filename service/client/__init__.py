"""The other side of the compile service: programs whose stages somebody else works out."""
