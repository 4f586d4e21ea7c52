"""MLIR locations in the plain form."""

from __future__ import annotations

from typing import Any

from shardc.hlo.stablehlo.mlir.bindings import Bindings

__all__ = ["LocationReader"]

_NOWHERE = ("", 0, 0, 0, 0)
_KINDS = {"name": "NameLoc", "file": "FileLineColLoc", "callsite": "CallSiteLoc", "fused": "FusedLoc"}


class LocationReader:
    """(name, file, line, column, end line, end column) of a location: the outermost name, the innermost frame."""

    def __init__(self, bindings: Bindings) -> None:
        # Newer bindings have a class per kind, older ones a question per kind.
        self.classes = {k: getattr(bindings.ir, name) for k, name in _KINDS.items() if hasattr(bindings.ir, name)}

    def __call__(self, location: Any) -> tuple[Any, ...]:
        kind, location = self.kind(location)
        if kind == "name":
            return (location.name_str.rstrip(":"), *self(location.child_loc)[1:])
        if kind == "file":
            start = (location.filename, location.start_line, location.start_col)
            return ("", *start, location.end_line, location.end_col)
        if kind == "callsite":
            callee = self(location.callee)
            return callee if callee[1] else self(location.caller)
        if kind == "fused":
            parts = [self(part) for part in location.locations]
            name = next((p[0] for p in parts if p[0]), "")
            return (name, *next((p[1:] for p in parts if p[1]), _NOWHERE))
        return ("", *_NOWHERE)

    def kind(self, location: Any) -> tuple[str, Any]:
        """The kind of a location, and it as that kind."""
        for kind, class_ in self.classes.items():
            if isinstance(location, class_):
                return kind, location
        for kind, class_ in self.classes.items():
            try:
                return kind, class_(location)
            except (TypeError, ValueError):
                continue
        for kind in _KINDS:
            question = getattr(location, f"is_a_{kind}", None)
            if question is not None and question():
                return kind, location
        return "", location
