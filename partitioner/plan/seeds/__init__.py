"""Start plans that differ in structure: each axis of the mesh splits one class of dimensions.

Start with `find_seeds.find_seeds`; `dimension_classes` finds the classes. `propagate_arguments` with `nearest_choice`
propagates a plan's arguments.
"""
