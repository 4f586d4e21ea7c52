"""Programs of any size in shapes that a compiler may take too long for, as HLO text on a 2x2 mesh; `SHAPES` by name.

Each takes about the number of instructions that it shall have.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["SHAPES"]

F = "f32[64,64]"
SPLIT = "sharding={devices=[2,2]<=[4]}"
STATE = f"(s32[], {F}, {F})"
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def _program(lines: list[str], before: str = "") -> str:
    return "HloModule growing, num_partitions=4\n\n" + before + "ENTRY %main {\n" + "\n".join(lines) + "\n}\n"


def _given() -> list[str]:
    return [f" %x_0 = {F} parameter(0), {SPLIT}", f" %w = {F} parameter(1), {SPLIT}"]


def _tuple(names: list[str], shape: str = F) -> str:
    return f" ROOT %r = ({', '.join([shape] * len(names))}) tuple({', '.join(names)})"


def layers(n: int) -> str:
    """A deep chain; all layers read the same weight."""
    lines = _given()
    for i in range(n // 4):
        lines += [f" %d_{i} = {F} dot(%x_{i}, %w), {PRODUCT}", f" %t_{i} = {F} tanh(%d_{i})"]
        lines += [f" %y_{i} = {F} sine(%t_{i})", f" %x_{i + 1} = {F} add(%y_{i}, %x_{i})"]
    return _program([*lines, f" ROOT %r = {F} negate(%x_{n // 4})"])


def weights(n: int) -> str:
    """A deep chain; a weight for each layer, split in turn in two ways."""
    lines, count = [f" %x_0 = {F} parameter(0), {SPLIT}"], n // 4
    for i in range(count):
        split = SPLIT if i % 2 else "sharding={devices=[1,2,2]<=[4] last_tile_dim_replicate}"
        lines += [f" %w_{i} = {F} parameter({i + 1}), {split}", f" %d_{i} = {F} dot(%x_{i}, %w_{i}), {PRODUCT}"]
        lines += [f" %t_{i} = {F} tanh(%d_{i})", f" %x_{i + 1} = {F} add(%t_{i}, %x_{i})"]
    return _program([*lines, f" ROOT %r = {F} negate(%x_{count})"])


def branches(n: int) -> str:
    """Parallel branches from one value."""
    lines, count = _given(), n // 4
    for i in range(count):
        lines += [f" %c_{i} = f32[] constant({i}.5)", f" %b_{i} = {F} broadcast(%c_{i}), dimensions={{}}"]
        lines += [f" %m_{i} = {F} multiply(%x_0, %b_{i})", f" %d_{i} = {F} dot(%m_{i}, %w), {PRODUCT}"]
    return _program([*lines, _tuple([f"%d_{i}" for i in range(count)])])


def joined(n: int, by: str = "concatenate", more: str = "dimensions={0}") -> str:
    """Parallel branches, one operation that reads all."""
    row, count = "f32[8,64]", n // 4
    lines = [f" %x_0 = {row} parameter(0), {SPLIT}", f" %w = {F} parameter(1), {SPLIT}"]
    for i in range(count):
        lines += [f" %c_{i} = f32[] constant({i}.5)", f" %b_{i} = {row} broadcast(%c_{i}), dimensions={{}}"]
        lines += [f" %m_{i} = {row} multiply(%x_0, %b_{i})", f" %d_{i} = {row} dot(%m_{i}, %w), {PRODUCT}"]
    parts, whole = ", ".join(f"%d_{i}" for i in range(count)), f"f32[{8 * count},64]"
    return _program([*lines, f" %k = {whole} {by}({parts}), {more}", f" ROOT %r = {whole} tanh(%k)"])


def readers(n: int) -> str:
    """A partial value that thousands read."""
    row, lines, count = "f32[1,64]", _given(), n // 2
    lines.append(f" %d = {F} dot(%x_0, %w), {PRODUCT}")
    for i in range(count):
        cut = f"slice={{[{i % 64}:{i % 64 + 1}], [0:64]}}"
        if i % 2:
            lines += [f" %y_{i} = {row} slice(%d), {cut}", f" %t_{i} = {row} tanh(%y_{i})"]
        else:
            lines += [f" %y_{i} = {F} sine(%d)", f" %t_{i} = {row} slice(%y_{i}), {cut}"]
    return _program([*lines, _tuple([f"%t_{i}" for i in range(count)], row)])


def reshapes(n: int) -> str:
    """A chain of reshapes and transposes."""
    lines = _given()[:1]
    for i in range(n // 4):
        lines += [f" %a_{i} = f32[64,8,8] reshape(%x_{i})"]
        lines += [f" %b_{i} = f32[8,64,8] transpose(%a_{i}), dimensions={{1,0,2}}"]
        lines += [f" %c_{i} = f32[512,8] reshape(%b_{i})", f" %x_{i + 1} = {F} reshape(%c_{i})"]
    return _program([*lines, f" ROOT %r = {F} negate(%x_{n // 4})"])


def _loop(name: str, inner: str, made: str, trips: int) -> str:
    """A loop's condition and body, which makes ``made`` of ``%v`` and ``%w``."""
    return (
        f"%cond_{name} {{ %p = {STATE} parameter(0)\n %i = s32[] get-tuple-element(%p), index=0\n"
        f" %n = s32[] constant({trips})\n ROOT %c = pred[] compare(%i, %n), direction=LT }}\n\n"
        f"%body_{name} {{ %p = {STATE} parameter(0)\n %i = s32[] get-tuple-element(%p), index=0\n"
        f" %v = {F} get-tuple-element(%p), index=1\n %w = {F} get-tuple-element(%p), index=2\n"
        f" %one = s32[] constant(1)\n %j = s32[] add(%i, %one)\n{inner}"
        f" ROOT %q = {STATE} tuple(%j, {made}, %w) }}\n\n"
    )


def _called(name: str, start: str, result: str) -> str:
    """A loop run from ``start``."""
    return (
        f" %s_{name} = {STATE} tuple(%z, {start}, %w)\n"
        f" %l_{name} = {STATE} while(%s_{name}), condition=%cond_{name}, body=%body_{name}\n"
        f" {result} = {F} get-tuple-element(%l_{name}), index=1\n"
    )


def loops(n: int) -> str:
    """Small loops one after another."""
    inner = f" %d = {F} dot(%v, %w), {PRODUCT}\n %t = {F} tanh(%d)\n"
    count = n // 16
    before = "".join(_loop(str(i), inner, "%t", 3 + i % 5) for i in range(count))
    lines = [*_given(), " %z = s32[] constant(0)", *(_called(str(i), f"%x_{i}", f"%x_{i + 1}") for i in range(count))]
    return _program([*lines, f" ROOT %r = {F} negate(%x_{count})"], before)


def nested(n: int) -> str:
    """Loops within loops: as deep as a 20th of what is asked for."""
    inner, before, depth = f" %u = {F} dot(%v, %w), {PRODUCT}\n %t = {F} tanh(%u)\n", "", max(1, n // 20)
    for d in range(depth):
        before += _loop(str(d), inner, "%t", 3 + d % 2)
        inner = " %z = s32[] constant(0)\n" + _called(str(d), "%v", "%u") + f" %t = {F} tanh(%u)\n"
    lines = [*_given(), " %z = s32[] constant(0)", _called(str(depth - 1), "%x_0", "%x_1")]
    return _program([*lines, f" ROOT %r = {F} negate(%x_1)"], before)


def crowded(n: int) -> str:
    """A loop in whose body thousands read one value."""
    inner, count = f" %y = {F} dot(%v, %w), {PRODUCT}\n %x_0 = {F} add(%v, %y)\n", n // 3
    for i in range(count):
        inner += f" %d_{i} = {F} dot(%x_{i}, %y), {PRODUCT}\n %t_{i} = {F} tanh(%d_{i})\n"
        inner += f" %x_{i + 1} = {F} add(%t_{i}, %y)\n"
    lines = [*_given(), " %z = s32[] constant(0)", _called("0", "%x_0", "%x_1")]
    return _program([*lines, f" ROOT %r = {F} negate(%x_1)"], _loop("0", inner, f"%x_{count}", 3))


def conditionals(n: int) -> str:
    """A conditional after each product."""
    before, count = "", n // 10
    lines = [*_given(), " %z = s32[] parameter(2)"]
    for i in range(count):
        for b, op in enumerate(("tanh", "sine")):
            last = "negate(%d) }" if i % 2 else "transpose(%d), dimensions={1,0} }"
            before += f"%branch_{i}_{b} {{ %v = {F} parameter(0)\n %d = {F} {op}(%v)\n ROOT %t = {F} {last}\n\n"
        lines += [f" %y_{i} = {F} dot(%x_{i}, %w), {PRODUCT}"]
        called = f"branch_computations={{%branch_{i}_0, %branch_{i}_1}}"
        lines += [f" %x_{i + 1} = {F} conditional(%z, %y_{i}, %y_{i}), {called}"]
    return _program([*lines, f" ROOT %r = {F} negate(%x_{count})"], before)


def calls(n: int) -> str:
    """Equal calls of one function."""
    before = f"%f {{ %v = {F} parameter(0)\n %w = {F} parameter(1)\n %d = {F} dot(%v, %w), {PRODUCT}\n"
    before += f" ROOT %t = {F} tanh(%d) }}\n\n"
    lines = [*_given(), *(f" %x_{i + 1} = {F} call(%x_{i}, %w), to_apply=%f" for i in range(n))]
    return _program([*lines, f" ROOT %r = {F} negate(%x_{n})"], before)


def parameters(n: int) -> str:
    """As many parameters and results as a third of the program."""
    lines: list[str] = []
    for i in range(n // 3):
        split = SPLIT if i % 3 else "sharding={devices=[4,1]<=[4]}"
        lines += [f" %p_{i} = {F} parameter({i}), {split}", f" %g_{i} = {F} negate(%p_{i})"]
        lines += [f" %u_{i} = {F} add(%p_{i}, %g_{i * 7 // 11})"]
    return _program([*lines, _tuple([f"%u_{i}" for i in range(n // 3)])])


SHAPES: dict[str, Callable[[int], str]] = {
    "deep, one weight": layers,
    "deep, many weights": weights,
    "wide": branches,
    "wide, concatenated": joined,
    "wide, one call": lambda n: joined(n, "custom-call", 'custom_call_target="own"'),
    "many readers": readers,
    "reshapes": reshapes,
    "loops": loops,
    "nested loops": nested,
    "a loop with many readers": crowded,
    "conditionals": conditionals,
    "equal calls": calls,
    "parameters and results": parameters,
}
