"""How one operation is split: the kinds of rows in the table of rules, and the choice among layouts by cost.

Start with `rule` and `choose`; `values` tracks the existing layouts of each value, `cause` records why data moves.
"""
