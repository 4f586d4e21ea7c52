"""`make test-full`: everything there is to test, in parts with time limits, and what came out of it in docs/status.md.

Start at `parts.py` (what is run), then `run.py` (how), `record.py` (pytest's side) and `status.py` (the page).
"""
