"""Which kind of program a module was made of, so that what people paste back is in their own terms.

It stands in the header of HLO text, too: ``frontend_attributes={shardc.frontend="torch"}``.
"""

from __future__ import annotations

from shardc.hlo.ir.ir import Module

__all__ = ["from_frontend", "frontend_of"]

_NAME = "shardc.frontend"


def from_frontend(module: Module, name: str) -> Module:
    """``module``, which says that it was made by the front end ``name``."""
    others = tuple((k, v) for k, v in module.attrs.get("frontend_attributes", ()) if k != _NAME)
    return module.with_(attrs={**module.attrs, "frontend_attributes": (*others, (_NAME, name))})


def frontend_of(module: Module) -> str:
    """The name that `from_frontend` has put there, else an empty string."""
    return str(dict(module.attrs.get("frontend_attributes", ())).get(_NAME, ""))
