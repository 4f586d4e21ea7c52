"""Whole modules after Shardy's passes and after ours, as text, line by line.

Both are printed by MLIR. What says nothing of shardings is left out: names of values, constants, the markers of
sharding groups (Shardy numbers the groups anew). So are reshards, which say nothing that their readers do not.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("jaxlib.mlir.passmanager")
sys.path.append(str(Path(__file__).parent.parent / "conformance"))
from shardy_passes import after_passes, drop_unread
from shardy_programs import RichProgram

from shardc.hlo.stablehlo.mlir.bindings import Bindings

_SINGLE = "sdy-sharding-group-import,sdy-add-data-flow-edges,{},func.func(sdy-sink-data-flow-edges)"
_PROPAGATE = "-sdy-add-data-flow-edges -sdy-{}-propagate -sdy-sink-data-flow-edges"


@dataclass(frozen=True)
class Mode:
    """Passes as a RUN line has them, and as MLIR's pass manager does."""

    run: str
    passes: str


def _single(name: str) -> Mode:
    return Mode(_PROPAGATE.format(name), _SINGLE.format(f"sdy-{name}-propagate"))


#: The pipeline without the reshards and reductions that it inserts at its end.
MODES = {
    "basic": _single("basic"),
    "aggressive": _single("aggressive"),
    "op-priority": _single("op-priority"),
    "user-priority": _single("user-priority"),
    "as written": Mode("-sdy-op-priority-propagate", "sdy-sharding-group-import,sdy-op-priority-propagate"),
    "pipeline": Mode(
        "-sdy-propagation-pipeline",
        "sdy-import-pipeline,sdy-flatten-call-graph,sdy-import-func-calls,sdy-apply-sharding-constraints,"
        "sdy-sharding-group-import,sdy-user-priority-propagate,sdy-export-named-computations,"
        "sdy-propagate-to-func-results,sdy-unflatten-call-graph,symbol-dce,sdy-insert-func-call-reshards,func.func(sdy-constant-or-scalar-merger),"
        "func.func(sdy-sink-data-flow-edges),sdy-remove-sharding-groups,func.func(sdy-sharding-constraint-to-reshard),"
        "sdy-update-non-divisible-input-output-shardings,sdy-remove-sub-axes-in-input-output-shardings,"
        "sdy-close-shardings",
    ),
}


def after_shardy(text: str, mode: Mode) -> str:
    with Bindings().context() as context:
        del context
        from jaxlib.mlir import ir, passmanager

        module = ir.Module.parse(text)
        passmanager.PassManager.parse(f"builtin.module({mode.passes})").run(module.operation)
        drop_unread(module.operation)
        return str(module)


def _lines(text: str) -> list[str]:
    text = re.sub(r" \{stablehlo\.mesh = .*?\}\}$", "", text, flags=re.MULTILINE)
    text = re.sub(r' attributes \{sdy\.original_func_name = "\w+"\}', "", text)
    text = re.sub(r"%\w+(:\d+)?(#\d+)?", "%", text)
    text = re.sub(r" \{sdy\.sharding = #sdy\.sharding<@mesh, \[(\{\}(, )?)*\]>\}", "", text)  # releases differ
    silent = ("stablehlo.constant", "sdy.constant", "sdy.sharding_group", "sdy.reshard")
    # Chains of constraints: Shardy moves some of them up, right behind the value.
    return sorted(line for line in text.splitlines() if not any(s in line for s in silent))


def with_function_edges(text: str) -> str:
    """The module with data-flow edges on functions' arguments and calls' results."""
    with Bindings().context():
        from jaxlib.mlir import ir, passmanager

        module = ir.Module.parse(text)
        passmanager.PassManager.parse("builtin.module(sdy-add-func-data-flow-edges)").run(module.operation)
        return str(module)


def differences(seed: int, mode: Mode) -> tuple[list[str], int]:
    """Lines of a random program on which the two sides part, and the number of lines."""
    return differences_of(RichProgram(seed).text, mode)


def differences_of(text: str, mode: Mode, *, numbered: bool = True) -> tuple[list[str], int]:
    """Lines of a program on which the two sides part, and the number of lines. Without ``numbered`` it does not matter
    which of a function's copies has which number."""
    ours = after_passes(f"// RUN: sdy_opt %s {mode.run}\n{text}")
    theirs = after_shardy(text, mode)
    if not numbered:
        ours, theirs = (re.sub(r"(@\w+?)(_\d+)*\b", r"\1", side) for side in (ours, theirs))
    ours, theirs = _lines(ours), _lines(theirs)
    rest = list(theirs)
    lost = []
    for line in ours:
        if line in rest:
            rest.remove(line)
        else:
            lost.append(line)
    return [*(f"ours   {line}" for line in lost), *(f"Shardy {line}" for line in rest)], len(ours)
