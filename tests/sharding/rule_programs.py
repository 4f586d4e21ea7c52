"""One operation per function, with random shapes and attributes: what the tests of factor rules run over.

`operations(seed)` gives StableHLO functions of every operation that Shardy has a rule for. The last operation of a
function is the one that is meant; those before it make its operands.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence

__all__ = ["one_module", "operations"]

Dims = Sequence[int]
Draw = random.Random

_SIZES = (1, 2, 3, 4, 6, 8, 12)
_UNARY = (
    "abs cbrt ceil cosine exponential exponential_minus_one floor log log_plus_one logistic negate "
    "round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh"
)
_BINARY = "add atan2 divide maximum minimum multiply power remainder subtract"
_BITS = "and or xor shift_left shift_right_arithmetic shift_right_logical"
_POINTWISE_CALLS = "LayoutConstraint annotate_device_placement mhlo.erf MoveToDevice MoveToHost Cholesky X64SplitLow"


def tensor(dims: Dims, element: str = "f32") -> str:
    return "tensor<" + "".join(f"{d}x" for d in dims) + element + ">"


def dims(r: Draw, low: int = 0, high: int = 4) -> list[int]:
    return [r.choice(_SIZES) for _ in range(r.randint(low, high))]


def function(body: str, operands: Sequence[str], results: Sequence[str]) -> str:
    """``body`` names its operands ``%a0``, ``%a1``, ... and its results ``%r``."""
    arguments = ", ".join(f"%a{n}: {t}" for n, t in enumerate(operands))
    names = ", ".join(f"%r#{n}" for n in range(len(results))) if len(results) > 1 else "%r"
    outs = ", ".join(results)
    return f"func.func @main({arguments}) -> ({outs}) {{\n  {body}\n  return {names} : {outs}\n}}\n"


def typed(operands: Sequence[str], results: Sequence[str]) -> str:
    return f"({', '.join(operands)}) -> ({', '.join(results)})"


def generic(name: str, operands: Sequence[str], results: Sequence[str], attrs: str = "", regions: str = "") -> str:
    """A function of one operation in MLIR's generic form."""
    inputs = ", ".join(f"%a{n}" for n in range(len(operands)))
    count = f":{len(results)}" if len(results) > 1 else ""
    inner = f" <{{{attrs}}}>" if attrs else ""
    body = f'%r{count} = "stablehlo.{name}"({inputs}){inner}{regions} : {typed(operands, results)}'
    return function(body, operands, results)


def array(values: Dims) -> str:
    return "array<i64" + (": " + ", ".join(map(str, values)) if values else "") + ">"


def combiner(op: str, count: int = 1, element: str = "f32") -> str:
    """A region that applies a binary operation to each of ``count`` pairs; ``second`` keeps the right ones."""
    t = f"tensor<{element}>"
    arguments = ", ".join(f"%x{n}: {t}" for n in range(count)) + ", " + ", ".join(f"%y{n}: {t}" for n in range(count))
    if op == "second":
        lines, outs = "", [f"%y{n}" for n in range(count)]
    else:
        lines = "".join(f"%k{n} = stablehlo.{op} %x{n}, %y{n} : {t}\n    " for n in range(count))
        outs = [f"%k{n}" for n in range(count)]
    return (
        f" ({{\n  ^bb0({arguments}):\n    {lines}stablehlo.return {', '.join(outs)} : {', '.join([t] * count)}\n  }})"
    )


def comparator(count: int) -> str:
    arguments = ", ".join(f"%x{n}: tensor<f32>, %y{n}: tensor<f32>" for n in range(count))
    return (
        f" ({{\n  ^bb0({arguments}):\n    %k = stablehlo.compare LT, %x0, %y0 : (tensor<f32>, tensor<f32>) -> "
        "tensor<i1>\n    stablehlo.return %k : tensor<i1>\n  })"
    )


# --- elementwise --------------------------------------------------------------------------------------------


def unary(r: Draw) -> str:
    t = tensor(dims(r))
    return generic(r.choice(_UNARY.split()), [t], [t])


def binary(r: Draw) -> str:
    name = r.choice((_BINARY + " " + _BITS).split())
    t = tensor(dims(r), "i32" if name in _BITS else "f32")
    return generic(name, [t, t], [t])


def odd_pointwise(r: Draw) -> str:
    d = dims(r)
    t, i, p, c = (tensor(d, e) for e in ("f32", "i32", "i1", "complex<f32>"))
    return r.choice(
        (
            generic("compare", [t, t], [p], "comparison_direction = #stablehlo<comparison_direction LT>"),
            generic("convert", [t], [i]),
            generic("complex", [t, t], [c]),
            generic("real", [c], [t]),
            generic("imag", [c], [t]),
            generic("is_finite", [t], [p]),
            generic("not", [p], [p]),
            generic("popcnt", [i], [i]),
            generic("count_leading_zeros", [i], [i]),
            generic("reduce_precision", [t], [t], "exponent_bits = 5 : i32, mantissa_bits = 2 : i32"),
        )
    )


def select(r: Draw) -> str:
    d = dims(r)
    t = tensor(d)
    return generic("select", [tensor(r.choice((d, [])), "i1"), t, t], [t])


def clamp(r: Draw) -> str:
    d = dims(r)
    t, bound = tensor(d), tensor(r.choice((d, [])))
    return generic("clamp", [bound, t, bound], [t])


def bitcast_convert(r: Draw) -> str:
    d = dims(r, 0, 3)
    narrow, wide, same = tensor([*d, 4], "i8"), tensor(d, "i32"), tensor(d)
    return generic("bitcast_convert", *r.choice((([wide], [narrow]), ([narrow], [wide]), ([wide], [same]))))


def pointwise_call(r: Draw) -> str:
    t = tensor(dims(r, 2, 4) if r.random() < 0.8 else [4, 4])
    return generic("custom_call", [t], [t], f'call_target_name = "{r.choice(_POINTWISE_CALLS.split())}"')


# --- contraction, reduction ---------------------------------------------------------------------------------


def dot_general(r: Draw) -> str:
    batch, contracted, left, right = dims(r, 0, 2), dims(r, 0, 2), dims(r, 0, 2), dims(r, 0, 2)
    lhs = [("b", n) for n in range(len(batch))] + [("k", n) for n in range(len(contracted))]
    rhs = list(lhs)
    lhs += [("i", n) for n in range(len(left))]
    rhs += [("j", n) for n in range(len(right))]
    r.shuffle(lhs)
    r.shuffle(rhs)
    sizes = {"b": batch, "k": contracted, "i": left, "j": right}

    def places(side: list[tuple[str, int]], kind: str) -> str:
        return "[" + ", ".join(str(side.index((kind, n))) for n in range(len(sizes[kind]))) + "]"

    numbers = (
        f"lhs_batching_dimensions = {places(lhs, 'b')}, rhs_batching_dimensions = {places(rhs, 'b')}, "
        f"lhs_contracting_dimensions = {places(lhs, 'k')}, rhs_contracting_dimensions = {places(rhs, 'k')}"
    )
    out = batch + [sizes[k][n] for k, n in lhs if k == "i"] + [sizes[k][n] for k, n in rhs if k == "j"]
    operands = [tensor([sizes[k][n] for k, n in side]) for side in (lhs, rhs)]
    return generic("dot_general", operands, [tensor(out)], f"dot_dimension_numbers = #stablehlo.dot<{numbers}>")


def dot(r: Draw) -> str:
    i, j, k = (r.choice(_SIZES) for _ in range(3))
    left, right = r.random() < 0.5, r.random() < 0.5
    operands = [tensor([i, k] if left else [k]), tensor([k, j] if right else [k])]
    return generic("dot", operands, [tensor([i] * left + [j] * right)])


def reduce(r: Draw) -> str:
    d = dims(r, 1, 4)
    reduced = sorted(r.sample(range(len(d)), r.randint(1, len(d))))
    out = [n for k, n in enumerate(d) if k not in reduced]
    count = r.choice((1, 1, 2))
    op = r.choice(("add", "maximum", "minimum", "multiply", "second"))
    operands = [tensor(d)] * count + [tensor([])] * count
    return generic("reduce", operands, [tensor(out)] * count, f"dimensions = {array(reduced)}", combiner(op, count))


def sort(r: Draw) -> str:
    d = dims(r, 1, 4)
    count = r.choice((1, 2))
    attrs = f"dimension = {r.randrange(len(d))} : i64"
    return generic("sort", [tensor(d)] * count, [tensor(d)] * count, attrs, comparator(count))


def top_k(r: Draw) -> str:
    d = dims(r, 1, 3)
    out = [*d[:-1], r.randint(1, d[-1])]
    attrs = 'call_target_name = "mhlo.topk"'
    return generic("custom_call", [tensor(d)], [tensor(out), tensor(out, "i32")], attrs)


def approximate_top_k(r: Draw) -> str:
    d = dims(r, 1, 3)
    at = r.randrange(len(d))
    out = [r.randint(1, n) if k == at else n for k, n in enumerate(d)]
    attrs = f'call_target_name = "{r.choice(("ApproxTopK", "PartialReduce"))}"'
    operands = [tensor(d), tensor(d, "i32"), tensor([]), tensor([], "i32")]
    return generic("custom_call", operands, [tensor(out), tensor(out, "i32")], attrs)


# --- shape --------------------------------------------------------------------------------------------------


def broadcast(r: Draw) -> str:
    out = dims(r, 0, 4)
    mapped = r.sample(range(len(out)), r.randint(0, len(out)))
    if r.random() < 0.7:
        mapped.sort()
    d = [1 if r.random() < 0.3 else out[m] for m in mapped]
    attrs = f"broadcast_dimensions = {array(mapped)}"
    return generic("broadcast_in_dim", [tensor(d)], [tensor(out)], attrs)


def transpose(r: Draw) -> str:
    d = dims(r, 0, 4)
    order = r.sample(range(len(d)), len(d))
    return generic("transpose", [tensor(d)], [tensor([d[k] for k in order])], f"permutation = {array(order)}")


def _grouped(r: Draw, primes: list[int]) -> list[int]:
    out, current = [], 1
    for p in primes:
        current *= p
        if r.random() < 0.5:
            out.append(current)
            current = 1
    return out if current == 1 else [*out, current]


def reshape(r: Draw) -> str:
    primes = [r.choice((1, 2, 2, 2, 3, 3, 4, 5)) for _ in range(r.randint(0, 6))]
    source = _grouped(r, primes)
    if r.random() < 0.4:
        r.shuffle(primes)
    return generic("reshape", [tensor(source)], [tensor(_grouped(r, primes))])


def concatenate(r: Draw) -> str:
    d = dims(r, 1, 3)
    at = r.randrange(len(d))
    sizes = [r.choice(_SIZES) for _ in range(r.randint(1, 3))]
    operands = [tensor([*d[:at], n, *d[at + 1 :]]) for n in sizes]
    out = tensor([*d[:at], sum(sizes), *d[at + 1 :]])
    return generic("concatenate", operands, [out], f"dimension = {at} : i64")


def rotate(r: Draw) -> str:
    """Slices of one value joined again."""
    n = r.choice((4, 6, 8))
    cut = r.randint(1, n - 1)
    whole, a, b = tensor([n, 4]), tensor([n - cut, 4]), tensor([cut, 4])
    body = (
        f"%u = stablehlo.slice %a0 [{cut}:{n}, 0:4] : ({whole}) -> {a}\n"
        f"  %v = stablehlo.slice %a0 [0:{cut}, 0:4] : ({whole}) -> {b}\n"
    )
    if r.random() < 0.5:
        out = tensor([n, 4])
        return function(f"{body}  %r = stablehlo.concatenate %u, %v, dim = 0 : ({a}, {b}) -> {out}", [whole], [out])
    out = tensor([2 * n - cut, 4])
    body = body.rsplit("\n  ", 1)[0] + f"\n  %r = stablehlo.concatenate %a0, %u, dim = 0 : ({whole}, {a}) -> {out}"
    return function(body, [whole], [out])


def slice_(r: Draw) -> str:
    d = dims(r, 1, 3)
    cuts = [(0, n, 1) if r.random() < 0.5 else _cut(r, n) for n in d]
    out = [-(-(hi - lo) // step) for lo, hi, step in cuts]
    starts, limits, steps = ([c[k] for c in cuts] for k in range(3))
    attrs = f"start_indices = {array(starts)}, limit_indices = {array(limits)}, strides = {array(steps)}"
    return generic("slice", [tensor(d)], [tensor(out)], attrs)


def _cut(r: Draw, n: int) -> tuple[int, int, int]:
    low = r.randrange(n)
    return low, r.randint(low + 1, n), r.choice((1, 1, 2))


def pad(r: Draw) -> str:
    d = dims(r, 1, 3)
    low, high, inside = ([r.choice((0, 0, 1, 2)) for _ in d] for _ in range(3))
    if r.random() < 0.3:
        high = [-min(1, n - 1) for n in d]
    out = [a + b + n + max(n - 1, 0) * i for a, b, n, i in zip(low, high, d, inside, strict=True)]
    attrs = f"edge_padding_low = {array(low)}, edge_padding_high = {array(high)}, interior_padding = {array(inside)}"
    return generic("pad", [tensor(d), tensor([])], [tensor(out)], attrs)


def reverse(r: Draw) -> str:
    d = dims(r, 1, 3)
    chosen = sorted(r.sample(range(len(d)), r.randint(0, len(d))))
    return generic("reverse", [tensor(d)], [tensor(d)], f"dimensions = {array(chosen)}")


# --- indexing -----------------------------------------------------------------------------------------------


def dynamic_slice(r: Draw) -> str:
    d = dims(r, 1, 3)
    out = [n if r.random() < 0.5 else r.randint(1, n) for n in d]
    operands = [tensor(d), *[tensor([], "i32")] * len(d)]
    return generic("dynamic_slice", operands, [tensor(out)], f"slice_sizes = {array(out)}")


def dynamic_update_slice(r: Draw) -> str:
    d = dims(r, 1, 3)
    part = [n if r.random() < 0.5 else r.randint(1, n) for n in d]
    return generic("dynamic_update_slice", [tensor(d), tensor(part), *[tensor([], "i32")] * len(d)], [tensor(d)])


def _indexed(r: Draw) -> tuple[list[int], list[int], list[int], list[int], str, list[int]]:
    """Operand, indices and slices dimensions, slice sizes, dimension numbers and the batching places of a gather."""
    d = dims(r, 1, 4)
    batching = sorted(r.sample(range(len(d)), r.choice((0, 0, min(1, len(d) - 1)))))
    rest = [k for k in range(len(d)) if k not in batching]
    mapped = r.sample(rest, r.randint(1, len(rest)))
    collapsed = sorted(k for k in rest if r.random() < 0.5)
    sizes = [1 if k in batching or k in collapsed else n for k, n in enumerate(d)]
    for k in mapped:
        if k not in collapsed and r.random() < 0.5:
            sizes[k] = r.randint(1, d[k])
    free = dims(r, 0, 2)
    indices = [*free, *(d[k] for k in batching)]
    batched = list(range(len(free), len(indices)))
    vector = r.randint(0, len(indices)) if len(mapped) == 1 and not batching and r.random() < 0.3 else len(indices)
    window = [sizes[k] for k in rest if k not in collapsed]
    offset = sorted(r.sample(range(len(window) + len(indices)), len(window)))
    sides = dict(zip(offset, window, strict=True))
    rows = iter(indices)
    slices = [sides[o] if o in sides else next(rows) for o in range(len(window) + len(indices))]
    implicit = len(mapped) == 1 and vector == len(indices) and r.random() < 0.3
    full = indices if implicit else [*indices[:vector], len(mapped), *indices[vector:]]
    numbers = (offset, collapsed, batching, batched, mapped, vector)
    return d, full, slices, sizes, _numbers(*numbers), batching


def _numbers(offset: Dims, collapsed: Dims, batching: Dims, batched: Dims, mapped: Dims, vector: int) -> str:
    names = ("OFFSET", "COLLAPSED", "BATCHING", "indices_batching_dims", "MAP")
    lists = (offset, collapsed, batching, batched, mapped)
    parts = [f"{name} = [{', '.join(map(str, v))}]" for name, v in zip(names, lists, strict=True) if v]
    return ", ".join([*parts, f"index_vector_dim = {vector}"])


def gather(r: Draw) -> str:
    d, indices, slices, sizes, numbers, _ = _indexed(r)
    for key, name in (
        ("OFFSET", "offset_dims"), ("COLLAPSED", "collapsed_slice_dims"), ("BATCHING", "operand_batching_dims"),
        ("indices_batching_dims", "start_indices_batching_dims"), ("MAP", "start_index_map"),
    ):  # fmt: skip
        numbers = numbers.replace(key, name)
    attrs = f"dimension_numbers = #stablehlo.gather<{numbers}>, slice_sizes = {array(sizes)}"
    return generic("gather", [tensor(d), tensor(indices, "i32")], [tensor(slices)], attrs)


def scatter(r: Draw) -> str:
    d, indices, slices, _, numbers, _ = _indexed(r)
    for key, name in (
        ("OFFSET", "update_window_dims"), ("COLLAPSED", "inserted_window_dims"), ("BATCHING", "input_batching_dims"),
        ("indices_batching_dims", "scatter_indices_batching_dims"), ("MAP", "scatter_dims_to_operand_dims"),
    ):  # fmt: skip
        numbers = numbers.replace(key, name)
    count = r.choice((1, 1, 2))
    op = r.choice(("add", "maximum", "minimum", "multiply", "second"))
    operands = [*[tensor(d)] * count, tensor(indices, "i32"), *[tensor(slices)] * count]
    attrs = f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}>"
    return generic("scatter", operands, [tensor(d)] * count, attrs, combiner(op, count))


# --- window -------------------------------------------------------------------------------------------------


def _windowed(n: int, size: int, stride: int, low: int, high: int, base: int = 1, dilate: int = 1) -> int:
    whole = (n - 1) * base + 1 + low + high if n else 0
    reach = (size - 1) * dilate + 1
    return 0 if whole < reach else (whole - reach) // stride + 1


def convolution(r: Draw) -> str:
    while True:
        spatial = r.randint(0, 2)
        sizes = [r.choice((4, 6, 8)) for _ in range(spatial)]
        kernel = [r.choice((1, 2, 3, n)) for n in sizes]
        stride = [r.choice((1, 1, 2, k)) for k in kernel]
        pads = [(r.choice((0, 0, 1)), r.choice((0, 0, 1))) for _ in sizes]
        dilate = [r.choice((1, 1, 2)) for _ in sizes]
        spans = zip(sizes, kernel, stride, pads, dilate, strict=True)
        out = [_windowed(n, k, s, *p, 1, e) for n, k, s, p, e in spans]
        if all(out):
            break
    groups = r.choice(((1, 1), (1, 1), (2, 1), (4, 1), (1, 2), (1, 4)))
    batch, features, outputs = r.choice((4, 8)), r.choice((4, 8)), r.choice((4, 8))
    lhs = {"b": batch, "f": features} | {str(k): n for k, n in enumerate(sizes)}
    rhs = {"i": features // groups[0], "o": outputs} | {str(k): n for k, n in enumerate(kernel)}
    result = {"b": batch // groups[1], "f": outputs} | {str(k): n for k, n in enumerate(out)}
    orders = [r.sample(list(side), len(side)) for side in (lhs, rhs, result)]
    labels = "[" + ", ".join(orders[0]) + "]x[" + ", ".join(orders[1]) + "]->[" + ", ".join(orders[2]) + "]"
    operands = [tensor([side[k] for k in o]) for side, o in zip((lhs, rhs), orders, strict=False)]
    padding = f"dense<{[list(p) for p in pads]}> : tensor<{spatial}x2xi64>, " if spatial else ""
    attrs = (
        f"window_strides = {array(stride)}, " + (f"padding = {padding}" if spatial else "")
        + f"rhs_dilation = {array(dilate)}, dimension_numbers = #stablehlo.conv<{labels}>, "
        f"feature_group_count = {groups[0]} : i64, batch_group_count = {groups[1]} : i64"
    )  # fmt: skip
    return generic("convolution", operands, [tensor([result[k] for k in orders[2]])], attrs)


def _window(r: Draw, d: Dims) -> tuple[list[int], str]:
    while True:
        size = [min(n, r.choice((1, 1, 2, 3))) for n in d]
        stride = [r.choice((1, 1, s)) for s in size]
        pads = [(r.choice((0, 0, 1)), r.choice((0, 0, 1))) if s > 1 else (0, 0) for s in size]
        out = [_windowed(n, s, t, *p) for n, s, t, p in zip(d, size, stride, pads, strict=True)]
        if all(out):
            break
    padding = f"padding = dense<{[list(p) for p in pads]}> : tensor<{len(d)}x2xi64>"
    return out, f"window_dimensions = {array(size)}, window_strides = {array(stride)}, {padding}"


def reduce_window(r: Draw) -> str:
    d = dims(r, 1, 3)
    out, attrs = _window(r, d)
    count = r.choice((1, 1, 2))
    operands = [tensor(d)] * count + [tensor([])] * count
    return generic("reduce_window", operands, [tensor(out)] * count, attrs, combiner("maximum", count))


def select_and_scatter(r: Draw) -> str:
    d = dims(r, 1, 3)
    out, attrs = _window(r, d)
    pick = comparator(1).replace("LT", "GE").strip()[1:-1]
    regions = f" ({pick}, {combiner('add').strip()[1:-1]})"
    return generic("select_and_scatter", [tensor(d), tensor(out), tensor([])], [tensor(d)], attrs, regions)


# --- linear algebra, random ---------------------------------------------------------------------------------


def cholesky(r: Draw) -> str:
    n = r.choice(_SIZES)
    t = tensor([*dims(r, 0, 2), n, n])
    return generic("cholesky", [t], [t], "lower = true")


def triangular_solve(r: Draw) -> str:
    batch, n, m = dims(r, 0, 2), r.choice(_SIZES), r.choice(_SIZES)
    left = r.random() < 0.5
    b = tensor([*batch, n, m] if left else [*batch, m, n])
    attrs = (
        f"left_side = {str(left).lower()}, lower = true, unit_diagonal = false, "
        f"transpose_a = #stablehlo<transpose {r.choice(('NO_TRANSPOSE', 'TRANSPOSE', 'ADJOINT'))}>"
    )
    return generic("triangular_solve", [tensor([*batch, n, n]), b], [b], attrs)


def fft(r: Draw) -> str:
    kind = r.choice(("FFT", "IFFT", "RFFT", "IRFFT"))
    d = [*dims(r, 0, 2), *(r.choice((2, 4, 8)) for _ in range(r.randint(1, 3)))]
    lengths = d[-r.randint(1, min(3, len(d))) :]
    half = [*d[:-1], d[-1] // 2 + 1]
    real, whole, less = tensor(d), tensor(d, "complex<f32>"), tensor(half, "complex<f32>")
    operand, result = {"RFFT": (real, less), "IRFFT": (less, real)}.get(kind, (whole, whole))
    return generic("fft", [operand], [result], f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {array(lengths)}")


def batch_norm(r: Draw) -> str:
    d = dims(r, 1, 4)
    at = r.randrange(len(d))
    attrs = f"epsilon = 0.1 : f32, feature_index = {at} : i64"
    return generic("batch_norm_inference", [tensor(d), *[tensor([d[at]])] * 4], [tensor(d)], attrs)


def random_bits(r: Draw) -> str:
    t, state = tensor(dims(r, 0, 3), "ui32"), tensor([2], "ui64")
    attrs = "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>"
    return generic("rng_bit_generator", [state], [state, t], attrs)


def decomposition(r: Draw) -> str:
    batch, m, n = dims(r, 0, 2), r.choice((4, 6)), r.choice((2, 4))
    a, taus = tensor([*batch, m, n]), tensor([*batch, min(m, n)])
    name, operands, results = r.choice(
        (
            ("Qr", [a], [a, taus]),
            ("ProductOfElementaryHouseholderReflectors", [a, taus], [a]),
            ("Eigh", [tensor([*batch, m, m])], [tensor([*batch, m, m]), tensor([*batch, m])]),
        )
    )
    return generic("custom_call", operands, results, f'call_target_name = "{name}"')


_MAKERS: tuple[Callable[[Draw], str], ...] = (
    unary, binary, odd_pointwise, select, clamp, bitcast_convert, pointwise_call, dot_general, dot, reduce, sort, top_k,
    approximate_top_k, broadcast, transpose, reshape, concatenate, rotate, slice_, pad, reverse, dynamic_slice,
    dynamic_update_slice, gather, scatter, convolution, reduce_window, select_and_scatter, cholesky, triangular_solve,
    fft, batch_norm, random_bits, decomposition,
)  # fmt: skip


def operations(seed: int, each: int) -> Iterator[tuple[str, str]]:
    """(kind, function named ``main``) for ``each`` random examples of every operation."""
    for maker in _MAKERS:
        r = random.Random(f"{maker.__name__} {seed}")
        for _ in range(each):
            yield maker.__name__.rstrip("_"), maker(r)


def one_module(functions: Sequence[str]) -> str:
    """Functions named ``main`` as functions ``f0``, ``f1``, ... that one ``main`` calls."""
    arguments, calls, values, types_out = [], [], [], []
    for n, text in enumerate(functions):
        types = re.match(r"func.func @main\((.*?)\) -> \((.*)\) \{\n", text)
        assert types is not None
        operands = re.findall(r"%a\d+: (tensor<(?:[^<>]|<[^<>]*>)*>)", types.group(1))
        results = types.group(2)
        names = [f"%a{n}_{k}" for k in range(len(operands))]
        arguments += [f"{name}: {t}" for name, t in zip(names, operands, strict=True)]
        count = results.count("tensor<")
        values += [f"%r{n}#{k}" for k in range(count)] if count > 1 else [f"%r{n}"]
        types_out.append(results)
        value = f"%r{n}:{count}" if count > 1 else f"%r{n}"
        calls.append(f"  {value} = call @f{n}({', '.join(names)}) : ({', '.join(operands)}) -> ({results})\n")
    bodies = "".join(t.replace("func.func @main", f"func.func private @f{n}", 1) for n, t in enumerate(functions))
    outs = ", ".join(types_out)
    end = f"  return {', '.join(values)} : {outs}\n}}\n"
    return "".join([bodies, f"func.func @main({', '.join(arguments)}) -> ({outs}) {{\n", *calls, end])
