"""The version of shardc, where every floor can read it."""

__all__ = ["VERSION"]

#: As pyproject.toml has it.
VERSION = "0.1.0"
