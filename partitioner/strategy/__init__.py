"""Which layouts an operation computes in: per operation (`choose`) and over connected regions (`region`).

Start with `choose`; a region is decided by variable elimination (`eliminate_variables`).
"""
