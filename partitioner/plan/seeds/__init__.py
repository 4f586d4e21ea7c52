"""Plans to begin with, which differ as a whole: each axis of the mesh is given to one class of dimensions.

Start with `find_seeds.find_seeds`; `dimension_classes` says which dimensions are one, and `propagate_arguments` with
`nearest_choice` what propagation makes of a plan's arguments.
"""
