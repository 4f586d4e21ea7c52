"""Programs against budgets: what a step may send, need and take, and which collectives it must not have.

Start with `check`; `budget` says what a budget is and reads its file.
"""
