"""Random StableHLO programs with random shardings, for comparison with Shardy."""

from __future__ import annotations

import random
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
        self.arguments = [self._argument(n) for n in range(self.random.randint(2, 4))]
        for _ in range(operations):
            self._operation()

    @property
    def text(self) -> str:
        mesh = ", ".join(f'"{n}"={s}' for n, s in self.axes)
        unused = self.values[-3:]
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
