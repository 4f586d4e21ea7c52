"""Random modules for comparison with Shardy: several functions, values on one device, operations that move elements."""

from __future__ import annotations

import random
import re

from shardy_programs import RichProgram, Value

_MESHES = "".join(f"sdy.mesh @max{n} = <[], device_ids=[{n}]>\n" for n in range(2))
_MADE = re.compile(r"^\s*(%v\d+) = [^\n]* (tensor<[\dx]+f32>)$", re.MULTILINE)


class WideProgram(RichProgram):
    """`RichProgram` with values on one device and operations that move elements."""

    def _operation(self) -> None:
        if self.random.random() < 0.6:
            super()._operation()
            return
        makers = [self._placed, self._made_there, self._cut, self._written, self._padded, self._reversed]
        makers += [self._sorted, self._gathered, self._scattered, self._windows, self._chosen, self._iota]
        self.random.choice(makers)(self.random.choice(self.values[-6:]))

    def _placed(self, x: Value) -> None:
        self._emit(x.dims, f"sdy.sharding_constraint {x.name} <@max{self.random.randint(0, 1)}, []>", x.type)

    def _made_there(self, x: Value) -> None:
        there = "{sdy.sharding = #sdy.sharding_per_value<[<@max0, []>]>}"
        self._emit(x.dims, f"stablehlo.sine {x.name} {there}", x.type)

    def _starts(self, x: Value) -> tuple[str, str]:
        """Start indices of a slice, and their types."""
        name = f"%at{self.count}"
        self.lines.append(f"{name} = stablehlo.constant dense<0> : tensor<i32>")
        return ", ".join([name] * len(x.dims)), ", ".join(["tensor<i32>"] * len(x.dims))

    def _half(self, x: Value) -> tuple[int, ...]:
        d = self.random.randrange(len(x.dims))
        return tuple(max(1, s // 2) if k == d else s for k, s in enumerate(x.dims))

    def _cut(self, x: Value) -> None:
        (starts, types), dims = self._starts(x), self._half(x)
        code = f"stablehlo.dynamic_slice {x.name}, {starts}, sizes = {list(dims)}"
        self._emit(dims, code, f"({x.type}, {types}) -> RESULT")

    def _written(self, x: Value) -> None:
        (starts, types), part = self._starts(x), Value("", self._half(x))
        piece = f"%piece{self.count}"
        ranges = ", ".join(f"0:{s}" for s in part.dims)
        self.lines.append(f"{piece} = stablehlo.slice {x.name} [{ranges}] : ({x.type}) -> {part.type}")
        code = f"stablehlo.dynamic_update_slice {x.name}, {piece}, {starts}"
        self._emit(x.dims, code, f"({x.type}, {part.type}, {types}) -> RESULT")

    def _zero(self) -> str:
        name = f"%zero{len(self.lines)}"
        self.lines.append(f"{name} = stablehlo.constant dense<0.0> : tensor<f32>")
        return name

    def _padded(self, x: Value) -> None:
        zero, d = self._zero(), self.random.randrange(len(x.dims))
        low = [int(k == d) * x.dims[d] for k in range(len(x.dims))]
        none = [0] * len(x.dims)
        dims = tuple(s + p for s, p in zip(x.dims, low, strict=True))
        code = f"stablehlo.pad {x.name}, {zero}, low = {low}, high = {none}, interior = {none}"
        self._emit(dims, code, f"({x.type}, tensor<f32>) -> RESULT")

    def _reversed(self, x: Value) -> None:
        self._emit(x.dims, f"stablehlo.reverse {x.name}, dims = [{self.random.randrange(len(x.dims))}]", x.type)

    def _sorted(self, x: Value) -> None:
        k, d = self.count, self.random.randrange(len(x.dims))
        code = (
            f'"stablehlo.sort"({x.name}) <{{dimension = {d} : i64, is_stable = true}}> ({{\n'
            f"    ^bb0(%x{k}: tensor<f32>, %y{k}: tensor<f32>):\n"
            f"    %lt{k} = stablehlo.compare LT, %x{k}, %y{k} : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
            f"    stablehlo.return %lt{k} : tensor<i1>\n  }})"
        )
        self._emit(x.dims, code, f"({x.type}) -> RESULT")

    def _rows(self, count: int) -> tuple[str, str]:
        name, type_ = f"%rows{self.count}", f"tensor<{count}x1xi32>"
        self.lines.append(f"{name} = stablehlo.constant dense<0> : {type_}")
        return name, type_

    def _gathered(self, x: Value) -> None:
        rows, type_ = self._rows(4)
        offsets = list(range(1, len(x.dims)))
        numbers = f"offset_dims = {offsets}, collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
        sizes = ", ".join(map(str, (1, *x.dims[1:])))
        code = (
            f'"stablehlo.gather"({x.name}, {rows}) <{{dimension_numbers = #stablehlo.gather<{numbers}>, '
            f"indices_are_sorted = false, slice_sizes = array<i64: {sizes}>}}>"
        )
        self._emit((4, *x.dims[1:]), code, f"({x.type}, {type_}) -> RESULT")

    def _scattered(self, x: Value) -> None:
        k = self.count
        rows, type_ = self._rows(x.dims[0])
        windows = list(range(1, len(x.dims)))
        numbers = (
            f"update_window_dims = {windows}, inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
            "index_vector_dim = 1"
        )
        code = (
            f'"stablehlo.scatter"({x.name}, {rows}, {x.name}) <{{scatter_dimension_numbers = '
            f"#stablehlo.scatter<{numbers}>}}> ({{\n    ^bb0(%x{k}: tensor<f32>, %y{k}: tensor<f32>):\n"
            f"    %sum{k} = stablehlo.add %x{k}, %y{k} : tensor<f32>\n    stablehlo.return %sum{k} : tensor<f32>\n  }})"
        )
        self._emit(x.dims, code, f"({x.type}, {type_}, {x.type}) -> RESULT")

    def _windows(self, x: Value) -> None:
        k, zero, d = self.count, self._zero(), self.random.randrange(len(x.dims))
        sizes = ", ".join(str(2 if n == d else 1) for n in range(len(x.dims)))
        padding = ", ".join("[1, 0]" if n == d else "[0, 0]" for n in range(len(x.dims)))
        code = (
            f'"stablehlo.reduce_window"({x.name}, {zero}) <{{window_dimensions = array<i64: {sizes}>, '
            f"padding = dense<[{padding}]> : tensor<{len(x.dims)}x2xi64>}}> ({{\n"
            f"    ^bb0(%x{k}: tensor<f32>, %y{k}: tensor<f32>):\n"
            f"    %sum{k} = stablehlo.add %x{k}, %y{k} : tensor<f32>\n    stablehlo.return %sum{k} : tensor<f32>\n  }})"
        )
        self._emit(x.dims, code, f"({x.type}, tensor<f32>) -> RESULT")

    def _chosen(self, x: Value) -> None:
        y, flags = self.random.choice([v for v in self.values if v.dims == x.dims]), f"%flags{self.count}"
        kind = x.type.replace("f32", "i1")
        self.lines.append(f"{flags} = stablehlo.compare LT, {x.name}, {y.name} : ({x.type}, {x.type}) -> {kind}")
        self._emit(x.dims, f"stablehlo.select {flags}, {x.name}, {y.name}", f"{kind}, {x.type}")

    def _iota(self, x: Value) -> None:
        name = f"%iota{self.count}"
        self.lines.append(f"{name} = stablehlo.iota dim = {self.random.randrange(len(x.dims))} : {x.type}")
        self._emit(x.dims, f"stablehlo.add {x.name}, {name}", x.type)


def random_module(seed: int, functions: int) -> str:
    """A module of a main function and other public ones, which may share a sharding group."""
    first = WideProgram(10 * seed, 8)
    programs = [first]
    number = 10 * seed
    while len(programs) < functions:
        number += 1
        program = WideProgram(number, 6)
        if program.axes == first.axes:
            programs.append(program)
    texts = [_apart(p.text.partition("\n")[2], k) for k, p in enumerate(programs)]
    mesh = ", ".join(f'"{n}"={s}' for n, s in first.axes)
    return f"sdy.mesh @mesh = <[{mesh}]>\n{_MESHES}" + "\n".join(_grouped(texts, random.Random(seed)))


def _apart(text: str, function: int) -> str:
    """Private functions and groups of their own; only the first function is the main one."""
    text = text.replace("@main", "@main" if function == 0 else f"@public{function}")
    text = re.sub(r"@f(\d+)", rf"@private{function}_\1", text)
    return re.sub(r"group_id=(\d+)", lambda m: f"group_id={100 * function + int(m[1])}", text)


def _grouped(texts: list[str], choices: random.Random) -> list[str]:
    """The functions with one sharding group across two of them, where two values have one type."""
    parts = [text.partition("\nfunc.func private") for text in texts]
    places = [(n, m) for n, (own, _, _) in enumerate(parts) for m in _MADE.finditer(own)]
    pairs = [(a, b) for a in places for b in places if a[0] < b[0] and a[1][2] == b[1][2]]
    out = [own for own, _, _ in parts]
    if pairs and choices.random() < 0.7:
        for n, made in choices.choice(pairs):
            marker = f"\n  sdy.sharding_group {made[1]} group_id=999 : {made[2]}"
            out[n] = out[n][: made.end()] + marker + out[n][made.end() :]
    return [own + sep + rest for own, (_, sep, rest) in zip(out, parts, strict=True)]
