"""A warning for mesh axes that a program gets and nothing uses: most often a name that is misspelled."""

from __future__ import annotations

import difflib
import logging

from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding

__all__ = ["unused_new_axes", "warn_of_new_axes"]


def unused_new_axes(before: Mesh | None, module: Module) -> tuple[str, ...]:
    """Axes of ``module`` that the mesh ``before`` lacks and no sharding names; none where there was no mesh."""
    if before is None or not before.axes or module.mesh is None:
        return ()
    new = [name for name in module.mesh.axis_names if name not in before.axis_names]
    if not new:
        return ()
    used = set()
    for i in module.instructions():
        leaves = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,)
        for leaf in leaves:
            if isinstance(leaf, Sharding):
                used |= {axis.name for dim in leaf.dims for axis in dim.axes}
    return tuple(name for name in new if name not in used)


def warn_of_new_axes(before: Mesh | None, module: Module) -> None:
    """Log a line for each of `unused_new_axes`, with the axis whose name is near."""
    for name in unused_new_axes(before, module):
        known = before.axis_names if before is not None else ()
        near = difflib.get_close_matches(name, known, n=1)
        hint = f": did you mean {near[0]}?" if near else f"; its own axes are {', '.join(known)}"
        logging.getLogger("shardc").warning(
            "warning: the mesh axis %s is new to the program, and nothing is split over it%s", name, hint
        )
