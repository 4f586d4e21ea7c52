"""Programs that differ in their number of elements alone have one object between them.

Eager ``jnp`` makes the same few operations for every shape that comes along. Where a small program computes element by
element, and all arrays that are no scalars are of one size, its *template* is the same program over one dimension; the
object that is made of it is told the number of elements by the executable's constants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardc.compiler.cache.cache import module_key
from shardc.compiler.cpu.parallel import chunks, flops_of
from shardc.compiler.emit.interface import argument_specs, result_specs
from shardc.compiler.executable import Executable
from shardc.compiler.lower.expand.inline_calls import InlineCalls
from shardc.compiler.lower.lowered import Buffer, Lowered
from shardc.hlo.ir.ir import Instruction, Module, rebuild_computation
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import Shape, tuple_shape

__all__ = ["TemplateUse", "find_template", "fits_any_count"]

#: The size that templates are lowered for: more than a vector, and a small array for all else that asks.
_SIZE = 1 << 20
#: Most instructions of a program that has a template: one kernel holds them.
_MOST = 32
#: What calls something, is random, or only moves (`shardc.compiler.routines` is for programs that do nothing else).
_OTHERS = frozenset({"map", "stochastic-convert", "copy"})
_COMPUTED = frozenset(o for o, op in OPS.items() if op.family == "elementwise") - _OTHERS


@dataclass(frozen=True)
class TemplateUse:
    """``program`` is ``template`` for ``count`` elements."""

    program: Module
    template: Module
    count: int

    def executable(self, made: Executable) -> Executable | None:
        """That of the program, which has the code of ``made``, the template's; None where there is none."""
        if not made.objects:
            return None
        arguments, results = argument_specs(self.program), result_specs(self.program)
        sizes = [sum(s.local_shape.nbytes for s in specs) for specs in (arguments, results)]
        aliased = sum(results[r].local_shape.nbytes for r, _ in made.aliases)
        constants = self.count.to_bytes(8, "little")
        memory = {
            **made.memory,
            "argument_bytes": sizes[0],
            "result_bytes": sizes[1],
            "aliased_bytes": aliased,
            "constant_bytes": len(constants),
            "peak_bytes": sum(sizes) - aliased + made.memory["temporary_bytes"],
        }
        return replace(
            made, name=self.program.name, arguments=arguments, results=results, constants=constants, memory=memory,
            meaning=module_key(self.program, None),
        )  # fmt: skip


def find_template(module: Module) -> TemplateUse | None:
    """The template of a program for one device, if it has one, and is so small that one thread computes it."""
    if module.partitioned or module.mesh is not None or module.num_partitions * module.replica_count > 1:
        return None
    entry = InlineCalls().run(module).entry
    if len(entry.instructions) > _MOST or not all(map(_is_by_element, entry)):
        return None
    if not any(i.opcode in _COMPUTED for i in entry):
        return None
    shapes = [s for i in entry for s in i.shape.leaves()]
    counts = {s.size for s in shapes if s.rank}
    results = entry.root.shape.leaves()
    if len(counts) != 1 or 0 in counts or not all(s.rank for s in results):
        return None
    border = sum(s.nbytes for i in entry if i.opcode in ("parameter", "tuple") for s in i.shape.leaves())
    if chunks(nbytes=border, flops=sum(map(flops_of, entry))) > 1:
        return None
    counted = rebuild_computation(entry, _counted)
    template = Module("template", (counted,), counted, aliases=module.aliases, donors=module.donors)
    return TemplateUse(module, template, counts.pop())


def fits_any_count(lowered: Lowered) -> bool:
    """Whether all of a lowered template lies where it would for any other number of elements."""

    def fits(buffer: Buffer) -> bool:
        place = lowered.plan.ref(buffer)
        if buffer.shape.rank:
            return place.space in ("argument", "result") and not place.offset
        return place.space == "arena" or buffer in lowered.parameters

    return not lowered.constants.data and all(map(fits, lowered.plan.placements))


def _is_by_element(i: Instruction) -> bool:
    """Whether the instruction can be expressed over one dimension."""
    operands = [o.shape for o in i.operands]
    if not all(s.is_array and not s.dynamic for s in i.shape.leaves()) or i.shape.layout is not None:
        return False
    if i.shape.is_tuple:
        return i.opcode == "tuple" and not any(s.is_tuple for s in operands)
    match i.opcode:
        case "constant":
            return bool(i.attrs["literal"].is_splat)
        case "iota":
            dims = i.shape.dims
            return bool(dims[i.attrs["iota_dimension"]] == i.shape.size)
        case "broadcast":
            places = i.attrs["dimensions"]
            return not operands[0].rank or (operands[0].size == i.shape.size and list(places) == sorted(places))
        case "reshape" | "copy":
            return bool(i.shape.rank) or not operands[0].rank
    return i.opcode == "parameter" or i.opcode in _COMPUTED


def _counted(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """``old`` with one dimension of `_SIZE` in place of its own."""
    if old.opcode == "tuple":
        return old.replace(shape=tuple_shape(*(o.shape for o in operands)), operands=operands, sharding=None)
    if not old.shape.rank:
        return None
    dims = (_SIZE,)
    match old.opcode:
        case "constant":
            literal = Literal.full(Shape(old.shape.dtype), old.attrs["literal"].splat)
            scalar = old.replace(shape=literal.shape, attrs={"literal": literal})
            return broadcast_scalar(scalar, dims, old)
        case "iota":
            return old.replace(shape=old.shape.with_dims(dims), attrs={"iota_dimension": 0})
        case "broadcast" | "reshape" | "copy":
            (operand,) = operands
            return operand if operand.shape.rank else broadcast_scalar(operand, dims, old)
    return old.replace(shape=old.shape.with_dims(dims), operands=operands, sharding=None)
