"""Options that have no effect beside others: one table for all commands, read before a command begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

from shardc.hlo.errors import InputError

__all__ = ["NEEDS", "RULES_OUT", "CheckedCommand"]

_SEARCH = ("tries", "seconds")
_COSTS = ("top", "remedies", *_SEARCH, "threshold", "picture")
#: By command, what only another option makes use of.
NEEDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "compile": {"link": ("blas", "library", "mpi")},
    "demo": {"write": ("overwrite",)},
    "explain": {"remedies": _SEARCH, "tries": ("remedies", "seconds")},
    "check": {"remedies": ("seconds",)},
    "report": {"remedies": ("seconds",)},
}
#: By command, what an option leaves no use for.
RULES_OUT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "run": {"inputs": ("seed",)},
    "bench": {"inputs": ("seed",)},
    "demo": {"write": ("ranks", "jax", "seed", "svg")},
    "explain": {
        "value": ("diff", "machine", "plan", "memory", *_COSTS),
        "diff": _COSTS,
        "json": ("top",),
    },
    "opt": {"list_passes": ("file", "passes", "output", "mesh", "annotate", "annotations")},
    "sweep": {"dask": ("jobs",), "server": ("jobs",), "json": ("top",)},
}


class CheckedCommand(TyperCommand):
    """A command that refuses what is given in vain: `NEEDS`, `RULES_OUT`, and options with an empty text."""

    def invoke(self, ctx: Any) -> Any:
        """Check what is given, then carry out the command. Raises `InputError`."""
        self._check(ctx)
        return super().invoke(ctx)

    def _check(self, ctx: Any) -> None:
        names = {p.name: _shown(p) for p in self.params}
        values: Mapping[str, Any] = ctx.params
        given = {name for name in names if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"}
        for name in given:
            if values[name] == "" or values[name] == [""]:
                raise InputError(f"{names[name]} is empty", fix=f"give it a value, or omit {names[name]}")
        for needed, options in NEEDS.get(self.name or "", {}).items():
            if not values[needed] and (vain := next((o for o in options if o in given), None)):
                beside = f"with {names[needed]} {values[needed]}" if needed in given else f"without {names[needed]}"
                raise _in_vain(names[vain], beside, f"omit {names[vain]}, or give {names[needed]}")
        for name, options in RULES_OUT.get(self.name or "", {}).items():
            if values[name] and (vain := next((o for o in options if o in given), None)):
                raise _in_vain(names[vain], f"with {names[name]}", "give one of them")


def _in_vain(option: str, beside: str, fix: str) -> InputError:
    return InputError(f"{option} has no effect {beside}", fix=fix)


def _shown(parameter: Any) -> str:
    """An option by its long name, an argument by what help calls it."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name)
    return next((o for o in parameter.opts if o.startswith("--")), str(parameter.opts[0]))
