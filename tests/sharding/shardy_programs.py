"""Random StableHLO programs with random shardings, for comparison with Shardy."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

SIZES = (2, 4, 8, 8, 16)


@dataclass
class Value:
    name: str
    dims: tuple[int, ...]

    @property
    def type(self) -> str:
        return "tensor<" + "".join(f"{d}x" for d in self.dims) + "f32>"


class Program:
    """Text of one program: arguments with some annotations, operations on what is there, some results annotated."""

    def __init__(self, seed: int, operations: int = 8) -> None:
        self.random = random.Random(seed)
        self.axes = self.random.choice([(("a", 2), ("b", 2)), (("a", 2), ("b", 4)), (("a", 4), ("b", 2), ("c", 2))])
        self.lines: list[str] = []
        self.count = 0
        self.values: list[Value] = []
        self.unused: list[Value] = []
        self.arguments = [self._argument(n) for n in range(self.random.randint(2, 4))]
        for _ in range(operations):
            self._operation()

    @property
    def text(self) -> str:
        mesh = ", ".join(f'"{n}"={s}' for n, s in self.axes)
        unused = self.unused or self.values[-3:]
        kinds = ", ".join(v.type + self._attribute(v, 0.3) for v in unused)
        returned = ", ".join(v.name for v in unused) + " : " + ", ".join(v.type for v in unused)
        body = "\n  ".join(self.lines)
        header = f"sdy.mesh @mesh = <[{mesh}]>\nfunc.func public @main({', '.join(self.arguments)}) -> ({kinds})"
        return f"{header} {{\n  {body}\n  return {returned}\n}}\n"

    def sharding(self, dims: tuple[int, ...], closed: float = 0.7) -> str:
        """A random sharding whose axes divide the dimensions."""
        left = list(self.axes)
        self.random.shuffle(left)
        parts = []
        for size in dims:
            axes = []
            while left and self.random.random() < 0.45 and size % left[-1][1] == 0:
                name, n = left.pop()
                size //= n
                axes.append(f'"{name}"')
            if self.random.random() >= closed:
                axes.append("?")
            parts.append("{" + ", ".join(axes) + "}")
        return f"<@mesh, [{', '.join(parts)}]>"

    def _attribute(self, v: Value, chance: float) -> str:
        if self.random.random() > chance:
            return ""
        return f" {{sdy.sharding = #sdy.sharding{self.sharding(v.dims)}}}"

    def _argument(self, n: int) -> str:
        v = Value(f"%arg{n}", tuple(self.random.choice(SIZES) for _ in range(self.random.randint(1, 3))))
        self.values.append(v)
        return f"{v.name}: {v.type}{self._attribute(v, 0.7)}"

    def _emit(self, dims: tuple[int, ...], code: str, signature: str) -> Value:
        v = Value(f"%v{self.count}", dims)
        self.count += 1
        self.lines.append(f"{v.name} = {code} : {signature.replace('RESULT', v.type)}")
        self.values.append(v)
        return v

    def _operation(self) -> None:
        x = self.random.choice(self.values[-6:])
        makers = [self._unary, self._binary, self._binary, self._dot, self._dot, self._reduce, self._transpose]
        makers += [self._reshape, self._broadcast, self._constraint, self._concatenate, self._constant, self._slice]
        self.random.choice(makers)(x)

    def _unary(self, x: Value) -> None:
        self._emit(x.dims, f"stablehlo.{self.random.choice(['sine', 'tanh', 'negate'])} {x.name}", x.type)

    def _binary(self, x: Value) -> None:
        same = [v for v in self.values if v.dims == x.dims]
        y = self.random.choice(same)
        self._emit(x.dims, f"stablehlo.{self.random.choice(['add', 'multiply'])} {x.name}, {y.name}", x.type)

    def _dot(self, x: Value) -> None:
        pairs = [(i, j, y) for y in self.values for i, m in enumerate(x.dims) for j, n in enumerate(y.dims) if m == n]
        pairs = [(i, j, y) for i, j, y in pairs if len(x.dims) + len(y.dims) - 2 in (1, 2, 3, 4)]
        if not pairs:
            return
        i, j, y = self.random.choice(pairs)
        dims = tuple(d for k, d in enumerate(x.dims) if k != i) + tuple(d for k, d in enumerate(y.dims) if k != j)
        code = f"stablehlo.dot_general {x.name}, {y.name}, contracting_dims = [{i}] x [{j}]"
        self._emit(dims, code, f"({x.type}, {y.type}) -> RESULT")

    def _reduce(self, x: Value) -> None:
        d = self.random.randrange(len(x.dims))
        zero = f"%z{len(self.lines)}"
        self.lines.append(f"{zero} = stablehlo.constant dense<0.0> : tensor<f32>")
        code = f"stablehlo.reduce({x.name} init: {zero}) applies stablehlo.add across dimensions = [{d}]"
        dims = tuple(s for k, s in enumerate(x.dims) if k != d)
        if dims:
            self._emit(dims, code, f"({x.type}, tensor<f32>) -> RESULT")

    def _transpose(self, x: Value) -> None:
        order = list(range(len(x.dims)))
        self.random.shuffle(order)
        code = f"stablehlo.transpose {x.name}, dims = {order}"
        self._emit(tuple(x.dims[d] for d in order), code, f"({x.type}) -> RESULT")

    def _reshape(self, x: Value) -> None:
        total = 1
        for d in x.dims:
            total *= d
        dims: list[int] = []
        while total > 1 and len(dims) < 3:
            size = self.random.choice([s for s in (2, 4, 8, 16, total) if total % s == 0])
            dims.append(size)
            total //= size
        if total > 1:
            dims.append(total)
        self._emit(tuple(dims), f"stablehlo.reshape {x.name}", f"({x.type}) -> RESULT")

    def _broadcast(self, x: Value) -> None:
        at = self.random.randint(0, len(x.dims))
        dims = (*x.dims[:at], self.random.choice(SIZES), *x.dims[at:])
        mapped = [d for d in range(len(dims)) if d != at]
        self._emit(dims, f"stablehlo.broadcast_in_dim {x.name}, dims = {mapped}", f"({x.type}) -> RESULT")

    def _constraint(self, x: Value) -> None:
        self._emit(x.dims, f"sdy.sharding_constraint {x.name} {self.sharding(x.dims)}", x.type)

    def _concatenate(self, x: Value) -> None:
        y = self.random.choice([v for v in self.values if v.dims == x.dims])
        d = self.random.randrange(len(x.dims))
        dims = tuple(2 * s if k == d else s for k, s in enumerate(x.dims))
        code = f"stablehlo.concatenate {x.name}, {y.name}, dim = {d}"
        self._emit(dims, code, f"({x.type}, {y.type}) -> RESULT")

    def _constant(self, x: Value) -> None:
        name = f"%c{self.count}"
        self.lines.append(f"{name} = stablehlo.constant dense<1.0> : {x.type}")
        self._emit(x.dims, f"stablehlo.add {x.name}, {name}", x.type)

    def _slice(self, x: Value) -> None:
        d = self.random.randrange(len(x.dims))
        dims = tuple(max(1, s // 2) if k == d else s for k, s in enumerate(x.dims))
        ranges = ", ".join(f"0:{s}" for s in dims)
        self._emit(dims, f"stablehlo.slice {x.name} [{ranges}]", f"({x.type}) -> RESULT")


class RichProgram(Program):
    """The same with everything else that shardings and Shardy's own ops can say.

    Open dimensions with priorities, sub-axes, replicated axes, barriers, reshards, sharding groups, loops, branches,
    optimization barriers, calls and manual computations.
    """

    def __init__(self, seed: int, operations: int = 10) -> None:
        self.functions: list[str] = []
        self.groups = 0
        super().__init__(seed, operations)

    @property
    def text(self) -> str:
        """Everything that nothing reads is returned, or Shardy would drop it."""
        body = "\n".join(self.lines)
        *others, last = self.values
        self.unused = [*(v for v in others if len(re.findall(re.escape(v.name) + r"\b", body)) < 2), last]
        return super().text + "\n".join(self.functions)

    def sharding(self, dims: tuple[int, ...], closed: float = 0.5, *, priorities: bool = True) -> str:
        left = self._references()
        parts = []
        for size in dims:
            axes = []
            while left and self.random.random() < 0.45 and size % left[-1][1] == 0:
                text, n = left.pop()
                size //= n
                axes.append(text)
            is_open = self.random.random() >= closed
            if is_open:
                axes.append("?")
            wanted = priorities and (axes or is_open) and self.random.random() < 0.2
            parts.append("{" + ", ".join(axes) + "}" + (f"p{self.random.randint(1, 2)}" if wanted else ""))
        text = f"@mesh, [{', '.join(parts)}]"
        kept = {a.partition(":")[0] for a, _ in left} if self.random.random() < 0.2 else set()
        full = [n for n, _ in self.axes if f'"{n}"' in kept and all(f'"{n}"' not in p for p in parts)][:1]
        return f"<{text}, replicated={{{', '.join(map(_quoted, full))}}}>" if full else f"<{text}>"

    def _references(self) -> list[tuple[str, int]]:
        """Axes in random order, some of them as two sub-axes."""
        out = []
        for name, n in self.axes:
            if n == 4 and self.random.random() < 0.3:
                out += [(f'"{name}":(1)2', 2), (f'"{name}":(2)2', 2)]
            else:
                out.append((f'"{name}"', n))
        self.random.shuffle(out)
        # Neighbouring halves in order would have to be written as one axis.
        return [a for k, a in enumerate(out) if not (k and a[0].endswith("(1)2") and out[k - 1][0].endswith("(2)2"))]

    def _operation(self) -> None:
        if self.random.random() < 0.6:
            super()._operation()
            return
        x = self.random.choice(self.values[-6:])
        makers = [self._barrier, self._reshard, self._group, self._loop, self._branch, self._pair]
        makers += [self._call, self._manual]
        self.random.choice(makers)(x)

    def _barrier(self, x: Value) -> None:
        where = self.random.choice(["NONE", "FORWARD", "BACKWARD"])
        self._emit(x.dims, f"sdy.propagation_barrier {x.name} allowed_direction={where}", x.type)

    def _reshard(self, x: Value) -> None:
        self._emit(x.dims, f"sdy.reshard {x.name} {self.sharding(x.dims, priorities=False)}", x.type)

    def _group(self, x: Value) -> None:
        same = [v for v in self.values if v.dims == x.dims and v is not x]
        if same:
            y = self.random.choice(same)
            for v in (x, y):
                self.lines.append(f"sdy.sharding_group {v.name} group_id={self.groups} : {v.type}")
            self.groups += 1

    def _loop(self, x: Value) -> None:
        k = self.count
        y = self.random.choice([v for v in self.values if v.dims == x.dims])
        self.lines += [
            f"%n{k} = stablehlo.constant dense<3> : tensor<i32>",
            f"%o{k} = stablehlo.constant dense<1> : tensor<i32>",
        ]
        code = (
            f"stablehlo.while(%a{k} = {x.name}, %b{k} = {y.name}, %i{k} = %o{k}) : {x.type}, {x.type}, tensor<i32>\n"
            f"    cond {{\n    %p{k} = stablehlo.compare LT, %i{k}, %n{k} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            f"    stablehlo.return %p{k} : tensor<i1>\n  }} do {{\n"
            f"    %s{k} = stablehlo.add %a{k}, %b{k} : {x.type}\n    %t{k} = stablehlo.sine %b{k} : {x.type}\n"
            f"    %j{k} = stablehlo.add %i{k}, %o{k} : tensor<i32>\n"
            f"    stablehlo.return %s{k}, %t{k}, %j{k} : {x.type}, {x.type}, tensor<i32>\n  }}"
        )
        self.lines.append(f"%w{k}:3 = {code}")
        self._emit(x.dims, f"stablehlo.add %w{k}#0, %w{k}#1", x.type)

    def _branch(self, x: Value) -> None:
        k = self.count
        y = self.random.choice([v for v in self.values if v.dims == x.dims])
        self.lines += [
            f"%q{k} = stablehlo.constant dense<1> : tensor<i32>",
            f'%r{k} = "stablehlo.case"(%q{k}) ({{\n    %c{k}x = stablehlo.sine {x.name} : {x.type}\n'
            f"    stablehlo.return %c{k}x : {x.type}\n  }}, {{\n    stablehlo.return {y.name} : {y.type}\n  }}) : "
            f"(tensor<i32>) -> {x.type}",
        ]
        self._emit(x.dims, f"stablehlo.tanh %r{k}", x.type)

    def _pair(self, x: Value) -> None:
        k, y = self.count, self.random.choice(self.values)
        self.lines.append(f"%e{k}:2 = stablehlo.optimization_barrier {x.name}, {y.name} : {x.type}, {y.type}")
        self._emit(x.dims, f"stablehlo.sine %e{k}#0", x.type)
        self._emit(y.dims, f"stablehlo.sine %e{k}#1", y.type)

    def _call(self, x: Value) -> None:
        k = self.count
        known = [f for f in self.functions if f"(%x: {x.type}" in f]
        if known and self.random.random() < 0.5:
            name = self.random.choice(known).split("@")[1].split("(")[0]
        else:
            name = f"f{k}"
            given = self._attribute(x, 0.2)
            lines = [
                f"func.func private @{name}(%x: {x.type}{given}) -> {x.type} {{",
                f"  %0 = stablehlo.sine %x : {x.type}",
                f"  %1 = stablehlo.add %0, %x : {x.type}",
                f"  return %1 : {x.type}\n}}",
            ]
            self.functions.append("\n".join(lines))
        self._emit(x.dims, f"func.call @{name}({x.name})", f"({x.type}) -> RESULT")

    def _manual(self, x: Value) -> None:
        k = self.count
        name, n = self.random.choice(self.axes)
        d = self.random.randrange(len(x.dims))
        if x.dims[d] % n:
            return
        local = Value("", tuple(s // n if i == d else s for i, s in enumerate(x.dims)))

        def side() -> str:
            dims = [f'{{"{name}"' if i == d else "{" for i in range(len(x.dims))]
            dims = [p + (("?}" if p == "{" else ", ?}") if self.random.random() < 0.6 else "}") for p in dims]
            return f"<@mesh, [{', '.join(dims)}]>"

        lines = [
            f"%m{k} = sdy.manual_computation({x.name}) in_shardings=[{side()}] out_shardings=[{side()}]",
            f'    manual_axes={{"{name}"}} (%l{k}: {local.type}) {{',
            f"    %g{k} = stablehlo.sine %l{k} : {local.type}",
            f"    sdy.return %g{k} : {local.type}\n  }} : ({x.type}) -> {x.type}",
        ]
        self.lines.append("\n".join(lines))
        self._emit(x.dims, f"stablehlo.tanh %m{k}", x.type)


def _quoted(name: str) -> str:
    return f'"{name}"'
