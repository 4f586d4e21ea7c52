"""How one operation is split: the kinds of rows in the table of rules, and the choice among layouts by cost.

Start with `rule` and `choose`; `values` knows which layouts of a value exist, `cause` records why data moves.
"""
