"""What Shardy writes into HLO text: shardings as frontend attributes, manual computations as custom calls.

XLA's dumps ``*.before_optimizations.txt`` of programs from JAX hold Shardy's annotations so. `with_shardy` brings them
into the form that programs read from MLIR have: axis-based shardings on instructions, and manual computations in
place, whose values cross the border one by one. Frontend attributes win over ``sharding=``, as they do in XLA.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.errors import ParseError
from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.custom_calls import (
    GLOBAL_TO_LOCAL,
    LOCAL_TO_GLOBAL,
    MANUAL_AXES,
    PROPAGATION_BARRIER,
    SHARDING_GROUP,
)
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations, topological
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, Sharding
from shardc.hlo.text.notations.shardy import parse_sdy_meshes, parse_sdy_names, parse_sdy_shardings

__all__ = ["with_shardy"]

_MESHES = "xla.sdy.meshes"
_SHARDING = "xla.sdy.sharding"
_BODY = "xla.sdy.manual_computation_body"
#: Frontend attributes that `_ShardyReader` turns into something else; others stay.
_READ = frozenset({_SHARDING, MANUAL_AXES, "xla.sdy.in_shardings", "xla.sdy.out_shardings"})
_DIRECTION = re.compile(r"NONE|FORWARD|BACKWARD|BOTH")


def with_shardy(module: Module) -> Module:
    """The module with Shardy's annotations read; the same object when its text has none.

    Raises `ParseError` that names the instruction for an annotation that cannot be read.
    """
    header = dict(module.attrs.get("frontend_attributes", ()))
    if _MESHES not in header and not any(map(_concerns_shardy, module.instructions())):
        return module
    meshes = parse_sdy_meshes(header.get(_MESHES, "{}"))
    called: dict[Computation, Computation] = {}
    for c in module.computations:
        called[c] = _ShardyReader(meshes, called).computation(c)
    attrs = {k: v for k, v in module.attrs.items() if k != "frontend_attributes"}
    if left := tuple((k, v) for k, v in header.items() if not k.startswith("xla.sdy.")):
        attrs["frontend_attributes"] = left
    entry = called[module.entry]
    needed = set(reachable_computations(entry))
    computations = tuple(c for c in called.values() if c in needed)
    found = set(meshes.values()) or {s.mesh for c in computations for i in c for s in _axis_shardings(i.sharding)}
    mesh = module.mesh or (found.pop() if len(found) == 1 else None)
    return module.with_(computations=computations, entry=entry, attrs=attrs, mesh=mesh)


def _axis_shardings(sharding: AnySharding) -> list[Sharding]:
    return [s for s in (sharding if isinstance(sharding, tuple) else (sharding,)) if isinstance(s, Sharding)]


def _concerns_shardy(i: Instruction) -> bool:
    if any(k.startswith("xla.sdy.") for k, _ in i.attrs.get("frontend_attributes", ())):
        return True
    return i.opcode == "custom-call" and str(i.attrs["custom_call_target"]).startswith("xla.sdy.")


def _frontend(i: Instruction) -> dict[str, str]:
    return dict(i.attrs.get("frontend_attributes", ()))


def _name_of(i: Instruction, number: int) -> str:
    """The name of one of the values that ``i`` becomes; a single one is called as ``i`` is."""
    return f"{i.name}.{number}" if i.shape.is_tuple else i.name


class _ShardyReader:
    """Rewrites one computation; ``new`` maps its instructions, ``parts`` those that became one value per element."""

    def __init__(self, meshes: Mapping[str, Mesh], called: Mapping[Computation, Computation]) -> None:
        self.meshes = meshes
        self.called = called
        self.new: dict[Instruction, Instruction] = {}
        self.parts: dict[Instruction, Sequence[Instruction]] = {}

    def computation(self, c: Computation) -> Computation:
        for i in c:
            self.new[i] = self._convert(i)
        if all(k is v for k, v in self.new.items()):
            return c
        kept = [self.new[i] for i in c if i not in self.parts]  # in their order; tuples that were read are left out
        root = self.new[c.root]
        return Computation(c.name, topological([*kept, root]), root)

    def _convert(self, i: Instruction) -> Instruction:
        operands = tuple(self.new[o] for o in i.operands)
        target = str(i.attrs.get("custom_call_target", ""))
        if i.opcode == "get-tuple-element" and i.operands[0] in self.parts:
            index: int = i.attrs["index"]
            return self.parts[i.operands[0]][index]
        if target == GLOBAL_TO_LOCAL:
            return self._several(i, self._enter(i, operands))
        if target == LOCAL_TO_GLOBAL:
            return self._several(i, self._leave(i, operands))
        if i.opcode == "call" and i.attrs["to_apply"].name.startswith(_BODY):
            return self._inline(i, operands)
        attrs = self._attributes(i, target)
        sharding = self._sharding(i)
        if sharding is i.sharding and attrs is i.attrs and operands == i.operands:
            return i
        return i.replace(operands=operands, attrs=attrs, sharding=sharding)

    def _several(self, i: Instruction, values: Sequence[Instruction]) -> Instruction:
        """One result as it is, several as a tuple whose elements are known."""
        if not i.shape.is_tuple:
            return values[0]
        self.parts[i] = values
        return Instruction("tuple", i.shape, values, name=i.name, metadata=i.metadata)

    # --- manual computations --------------------------------------------------------------------------------

    def _enter(self, i: Instruction, operands: Sequence[Instruction]) -> list[Instruction]:
        """Each operand constrained to its sharding and cut; where the text has constraints, they stay."""
        given = self._shardings(i, "xla.sdy.in_shardings") or (None,) * len(operands)
        shapes = i.shape.elements if i.shape.is_tuple else (i.shape,)
        axes = self._manual_axes(i, i.sharding)
        out: list[Instruction] = []
        for whole, shape, sharding in zip(operands, shapes, given, strict=True):
            name = _name_of(i, len(out))
            if sharding is not None:
                attrs: dict[str, Any] = {"custom_call_target": "Sharding"}
                whole = Instruction(
                    "custom-call",
                    whole.shape,
                    (whole,),
                    attrs,
                    name=f"{i.name}.{len(out)}",
                    sharding=sharding,
                    metadata=i.metadata,
                )
            own = i.sharding if isinstance(i.sharding, Sharding) and i.sharding.manual else None
            out.append(_crossing(GLOBAL_TO_LOCAL, shape, whole, axes, name, i, own))
        return out

    def _leave(self, i: Instruction, operands: Sequence[Instruction]) -> list[Instruction]:
        shapes = i.shape.elements if i.shape.is_tuple else (i.shape,)
        own = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,) * len(shapes)
        given = self._shardings(i, "xla.sdy.out_shardings") or own
        inner = i.operands[0]
        while inner.opcode == "get-tuple-element" and inner.sharding is None:
            inner = inner.operands[0]
        axes = self._manual_axes(i, inner.sharding)
        values = zip(operands, shapes, given, strict=True)
        return [
            _crossing(LOCAL_TO_GLOBAL, shape, value, axes, _name_of(i, k), i, sharding)
            for k, (value, shape, sharding) in enumerate(values)
        ]

    def _manual_axes(self, i: Instruction, sharding: AnySharding) -> str:
        """From the attribute, in newer texts from the sharding of what is inside."""
        text = _frontend(i).get(MANUAL_AXES)
        if text is not None:
            return ",".join(parse_sdy_names(text))
        leaf = sharding[0] if isinstance(sharding, tuple) and sharding else sharding
        if isinstance(leaf, Sharding) and leaf.manual:
            return ",".join(leaf.manual)
        raise ParseError(f"%{i.name} does not name its manual axes", where=i.source or None)

    def _inline(self, i: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """The body of a manual computation in place of the call."""
        body = self.called.get(i.attrs["to_apply"], i.attrs["to_apply"])
        inside: dict[Instruction, Instruction] = {}
        for b in body:
            if b.opcode == "parameter":
                inside[b] = operands[b.attrs["index"]]
            else:
                inside[b] = b.replace(operands=tuple(inside[o] for o in b.operands), name=f"{i.name}.{b.name}")
        root = inside[body.root]
        if root.opcode == "tuple":
            self.parts[i] = root.operands
        return root

    # --- attributes -----------------------------------------------------------------------------------------

    def _attributes(self, i: Instruction, target: str) -> Mapping[str, Any]:
        attrs = dict(i.attrs)
        for key, callee in called_computations(i):
            if isinstance(i.attrs[key], tuple):
                attrs[key] = tuple(self.called.get(c, c) for c in i.attrs[key])
            else:
                attrs[key] = self.called.get(callee, callee)
        if target == "xla.sdy.FuncResultSharding":
            attrs["custom_call_target"] = "Sharding"
            attrs.pop("custom_call_has_side_effect", None)
        frontend = {k: _plain(target, k, v) for k, v in _frontend(i).items() if k not in _READ}
        if frontend != _frontend(i):
            attrs["frontend_attributes"] = tuple(frontend.items())
            if not frontend:
                del attrs["frontend_attributes"]
        return i.attrs if attrs == dict(i.attrs) else attrs

    def _sharding(self, i: Instruction) -> AnySharding:
        found = self._shardings(i, _SHARDING)
        if found is None:
            return i.sharding
        return found if i.shape.is_tuple else found[0]

    def _shardings(self, i: Instruction, name: str) -> tuple[Sharding, ...] | None:
        text = _frontend(i).get(name)
        if text is None:
            return None
        try:
            return parse_sdy_shardings(text, self.meshes)
        except ParseError as e:
            where = i.place
            raise ParseError(f"{name}={text}: {e.what}", where=where, fix=e.fix) from None


def _crossing(
    target: str, shape: Any, value: Instruction, axes: str, name: str, i: Instruction, sharding: AnySharding
) -> Instruction:
    """A value over the border of a manual computation."""
    attrs = {"custom_call_target": target, "frontend_attributes": ((MANUAL_AXES, axes),)}
    return Instruction("custom-call", shape, (value,), attrs, name=name, sharding=sharding, metadata=i.metadata)


def _plain(target: str, name: str, text: str) -> str:
    """Values of Shardy's markers without the MLIR around them: ``FORWARD``, ``3``."""
    if target == PROPAGATION_BARRIER and name == "xla.sdy.allowed_direction":
        found = _DIRECTION.search(text)
        return found.group() if found else text
    if target == SHARDING_GROUP and name == "xla.sdy.sharding_group_id":
        return text.partition(":")[0].strip()
    return text
