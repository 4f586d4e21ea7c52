"""A warning for mesh axes that a program gets and nothing uses: most often a name that is misspelled."""

from __future__ import annotations

import difflib
import logging

from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding

__all__ = ["warn_of_new_axes"]


def warn_of_new_axes(before: Mesh | None, module: Module) -> None:
    """Log a line for each axis of ``module`` that the mesh ``before`` lacks and no sharding names, with the axis whose
    name is near. There is none where the program had no mesh."""
    if before is None or not before.axes:
        return
    for name in _unused_new_axes(before, module):
        near = difflib.get_close_matches(name, before.axis_names, n=1)
        hint = f": did you mean {near[0]}?" if near else f"; its own axes are {', '.join(before.axis_names)}"
        logging.getLogger("shardc").warning(
            "the mesh axis %s is new to the program, and no annotation uses it%s", name, hint
        )


def _unused_new_axes(before: Mesh, module: Module) -> list[str]:
    new = [name for name in module.mesh.axis_names if name not in before.axis_names] if module.mesh else []
    used = set()
    for i in module.instructions() if new else ():
        leaves = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,)
        for leaf in leaves:
            if isinstance(leaf, Sharding):
                used |= {axis.name for axes in leaf.axes_by_dim for axis in axes}
    return [name for name in new if name not in used]
