"""Shardy's own propagation, run through jaxlib, as a second truth for ours.

Every operation of a StableHLO program gets its own location; both sides then report a sharding per location.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.sharding.propagate import Propagation, propagate

#: Shardy's propagation without the passes that insert reshards and adapt the interface afterwards.
PIPELINE = (
    "builtin.module(sdy-import-pipeline,sdy-flatten-call-graph,sdy-import-func-calls,sdy-apply-sharding-constraints,"
    "sdy-sharding-group-import,sdy-user-priority-propagate,sdy-export-named-computations,"
    "sdy-propagate-to-func-results,func.func(sdy-constant-or-scalar-merger),func.func(sdy-sink-data-flow-edges),"
    "sdy-update-non-divisible-input-output-shardings,sdy-close-shardings)"
)
Layout = tuple[tuple[str, ...], ...]


def context():
    """A context with the dialects that StableHLO programs from JAX need; skips where jaxlib is missing."""
    pytest.importorskip("jaxlib.mlir.passmanager")
    mlir = pytest.importorskip("jax._src.interpreters.mlir")
    made = mlir.make_ir_context()
    made.allow_unregistered_dialects = True
    return made


def run_passes(text: str, pipeline: str = PIPELINE) -> str:
    """The module after Shardy's passes, as text."""
    from jaxlib.mlir import ir, passmanager

    with context():
        module = ir.Module.parse(text)
        passmanager.PassManager.parse(pipeline).run(module.operation)
        return module.operation.get_asm(enable_debug_info=True)


def with_numbered_operations(text: str) -> str:
    """The same program with locations ``op0``, ``op1``, ... on its operations."""
    from jaxlib.mlir import ir

    with context():
        module = ir.Module.parse(text)
        count = 0

        def visit(op: ir.Operation) -> ir.WalkResult:
            nonlocal count
            if op.name not in ("func.func", "builtin.module"):
                op.location = ir.Location.name(f"op{count}")
                count += 1
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        return module.operation.get_asm(enable_debug_info=True)


def _parse_shardings(text: str) -> list[Layout]:
    """The tensor shardings in an attribute's text, each as axes per dimension."""
    out = []
    for dims in re.findall(r"<@\w+, \[(.*?)\](?:, replicated|, unreduced|>)", text):
        entries = re.findall(r"\{(.*?)\}", dims)
        out.append(tuple(tuple(a.replace('"', "") for a in re.findall(r'"[^"]+"(?::\(\d+\)\d+)?', e)) for e in entries))
    return out


def shardy_layouts(text: str, pipeline: str = PIPELINE) -> dict[str, list[Layout]]:
    """Location name to the layouts of the operation's results, as Shardy decides them (missing ones are empty)."""
    from jaxlib.mlir import ir, passmanager

    found: dict[str, list[Layout]] = {}
    seen: Counter[str] = Counter()
    with context():
        module = ir.Module.parse(text)
        passmanager.PassManager.parse(pipeline).run(module.operation)

        def visit(op: ir.Operation) -> ir.WalkResult:
            name = re.match(r'loc\("(op\d+)"', str(op.location))
            if name is None or not len(op.results) or op.name.startswith("sdy.reshard"):
                return ir.WalkResult.ADVANCE
            ranks = [r.type.rank if hasattr(r.type, "rank") else 0 for r in op.results]
            key = "sharding" if op.name == "sdy.sharding_constraint" else "sdy.sharding"
            shardings = _parse_shardings(str(op.attributes[key])) if key in op.attributes else []
            if len(shardings) != len(ranks):
                shardings = [((),) * r for r in ranks]
            seen[name.group(1)] += 1
            found[name.group(1)] = shardings
            return ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        main = next(o for o in module.body.operations if str(o.attributes.get("sym_name", "")) == '"main"')
        for kind, types, key in (("arg", main.type.inputs, "arg_attrs"), ("result", main.type.results, "res_attrs")):
            attrs = list(main.attributes[key]) if key in main.attributes else [{}] * len(types)
            for n, (type_, given) in enumerate(zip(types, attrs, strict=True)):
                shardings = _parse_shardings(str(given["sdy.sharding"])) if "sdy.sharding" in given else []
                found[f"{kind}{n}"] = shardings or [((),) * getattr(type_, "rank", 0)]
    return {k: v for k, v in found.items() if seen[k] <= 1}


def layout_of(sharding: Sharding) -> Layout:
    return tuple(tuple(str(a) for a in d.axes) for d in sharding.dims)


def our_layouts(text: str) -> tuple[dict[str, list[Layout]], Propagation]:
    """The same for our propagation."""
    propagation = propagate(read_stablehlo(text))
    module = propagation.module
    found: dict[str, list[Layout]] = {}
    seen: Counter[str] = Counter()

    def add(name: str, i: Instruction) -> None:
        seen[name] += 1
        found[name] = [layout_of(s) for s in i.leaf_shardings()]

    for i in module.instructions():
        name = i.metadata.op_name if i.metadata else ""
        short = re.search(r"op\d+$", name)
        if short and i.sharding is not None and i.opcode not in ("get-tuple-element", "tuple", "constant", "parameter"):
            add(short.group(), i)
    for n, p in enumerate(module.parameters):
        add(f"arg{n}", p)
    for n, s in enumerate(module.entry.root.leaf_shardings()):
        found[f"result{n}"] = [layout_of(s)]
    return {k: v for k, v in found.items() if seen[k] <= 1}, propagation


def differences(text: str, pipeline: str = PIPELINE) -> tuple[list[str], int]:
    """Lines on values that the two sides lay out differently, and the number of values compared."""
    numbered = with_numbered_operations(text)
    theirs = shardy_layouts(numbered, pipeline)
    ours, _ = our_layouts(numbered)
    common = [k for k in theirs if k in ours and len(theirs[k]) == len(ours[k])]
    lines = [f"{k}: ours {ours[k]}, Shardy {theirs[k]}" for k in common if ours[k] != theirs[k]]
    return lines, len(common)
