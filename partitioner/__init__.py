"""Global program to per-device program."""
