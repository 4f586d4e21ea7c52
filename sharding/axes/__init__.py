"""The algebra of mesh axes and sub-axes, and tilings seen as ranges of device numbers.

Start with `sub_axes`; `tile_ranges` reads tile assignments.
"""
