"""Factor rules: their notation, the table, and Shardy's rules for the same operations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_programs import one_module, operations
from shardy_oracle import context, run_passes

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import array_shape
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.sharding.rules import RULES, factor_rule, is_data_flow
from shardc.sharding.rules.factor_rule import FactorKind, factor_name
from shardc.sharding.rules.reshape import reshape
from shardc.sharding.rules.signature import DataFlow, Replicate, Unsupported

JAXLIB = tuple(int(n) for n in version("jaxlib").split(".")[:2])


def parameter(*dims: int, dtype: str = "f32") -> Instruction:
    return Instruction("parameter", array_shape(dtype, *dims), (), {"index": 0})


def op(opcode: str, dims: tuple[int, ...], *operands: Instruction, **attrs: Any) -> Instruction:
    return Instruction(opcode, array_shape("f32", *dims), operands, attrs)


def test_every_op_has_a_row_with_a_reason_where_it_has_no_rule() -> None:
    assert set(RULES) == set(OPS)
    for row in RULES.values():
        if isinstance(row, DataFlow | Replicate | Unsupported):
            assert row.why


def test_notation() -> None:
    dot = op("dot", (4, 16), parameter(4, 8), parameter(8, 16), lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    assert str(factor_rule(dot)) == "([i, k], [k, j])->([i, j]) {i=4, j=16, k=8} reduction={k}"
    assert factor_rule(dot).reduction == "sum"
    cut = op("dynamic-slice", (4, 3), parameter(4, 8), parameter(dtype="s32"), parameter(dtype="s32"))
    shown = "([i, j], [], [])->([i, j]) {i=4, j=8} need_replication={j} blocked_propagation={j}"
    assert str(factor_rule(cut)) == shown
    assert [factor_name(n) for n in (0, 17, 18, 19)] == ["i", "z", "z_1", "z_2"]


def test_equal_operations_share_one_rule() -> None:
    a, b = parameter(4, 8), parameter(4, 8)
    assert factor_rule(op("add", (4, 8), a, b)) is factor_rule(op("add", (4, 8), b, a))
    assert factor_rule(op("add", (4, 8), a, b)) is not factor_rule(op("add", (4, 4), parameter(4, 4), parameter(4, 4)))


@pytest.mark.parametrize(
    ("body", "kind"),
    [("add", "sum"), ("maximum", "max"), ("minimum", "min"), ("multiply", "multiply"), ("subtract", "")],
)
def test_what_a_reduction_reduces_with(body: str, kind: str) -> None:
    apply = binary_computation(body, "f32")
    r = op("reduce", (4,), parameter(4, 8), parameter(), dimensions=(1,), to_apply=apply)
    assert factor_rule(r).reduction == kind


def test_collectives_pass_free_axes_through_what_they_do_not_cut() -> None:
    assert str(factor_rule(op("all-reduce", (4,), parameter(4)))) == "([i])->([i]) {i=4}"
    gather = factor_rule(op("all-gather", (8, 6), parameter(4, 6), dimensions=(0,)))
    assert str(gather) == "([j, i])->([k, i]) {i=6, j=4, k=8} need_replication={j, k} blocked_propagation={j, k}"
    with pytest.raises(UnsupportedError, match="send cannot be partitioned"):
        factor_rule(op("send", (4,), parameter(4), parameter()))


def test_data_flow_has_no_rule() -> None:
    assert is_data_flow("while")
    with pytest.raises(ValueError, match="data-flow"):
        factor_rule(op("tuple", (4,), parameter(4)))


def test_unknown_custom_call_needs_everything_whole() -> None:
    rule = factor_rule(op("custom-call", (4,), parameter(4, 8), custom_call_target="mystery"))
    assert all(f.kind is FactorKind.NEED_REPLICATION and f.blocked for f in rule.factors)
    assert "mystery" in rule.reason


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    primes = draw(st.lists(st.sampled_from([1, 2, 2, 3, 4, 5]), min_size=1, max_size=6))

    def group(parts: list[int]) -> tuple[int, ...]:
        cuts = draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
        dims, current = [], 1
        for p, cut in zip(parts, cuts, strict=True):
            current *= p
            if cut:
                dims.append(current)
                current = 1
        return (*dims, current)

    return group(primes), group(draw(st.permutations(primes)) if draw(st.booleans()) else primes)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(reshapes())
def test_reshape_rule_describes_both_shapes(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, target = shapes
    rule = reshape(source, target)
    for tensor, dims in zip(rule.tensors, (source, target), strict=True):
        for indices, size in zip(tensor, dims, strict=True):
            exact = math.prod(rule.factors[f].size for f in indices) == size
            assert exact or any(rule.factors[f].kind is FactorKind.PERMUTATION for f in indices)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(reshapes())
def test_reshape_is_local_when_the_major_pass_through_factor_is_split(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    """Splitting a factor with nothing unsplit before it gives shards that reshape on their own."""
    source, target = shapes
    rule = reshape(source, target)
    whole = np.arange(math.prod(source)).reshape(source)
    for f in rule.of_kind(FactorKind.PASS_THROUGH):
        size = rule.factors[f].size
        places = [(t, d) for t, d in rule.places(f) if rule.tensors[t][d][0] == f]
        if len(places) != 2 or size == 1:
            continue
        (_, d), (_, e) = places
        for shard in range(size):
            piece = np.take(whole.reshape(source), range(shard * source[d] // size, (shard + 1) * source[d] // size), d)
            full = whole.reshape(target)
            expected = np.take(full, range(shard * target[e] // size, (shard + 1) * target[e] // size), e)
            np.testing.assert_array_equal(piece.reshape(expected.shape), expected)


Canonical = tuple[str, tuple[tuple[str, int, tuple[str, ...]], ...]]


def canonical(text: str) -> Canonical:
    """A printed rule with its factors named in order of appearance; factors of size 1 have no kind."""
    equation, sizes_text, tail = re.match(r"(\(.*?\)->\(.*?\))(?: \{(.*?)\})?(.*)$", text).groups()  # type: ignore[union-attr]
    sizes = dict(item.split("=") for item in (sizes_text or "").split(", ") if item)
    names: dict[str, str] = {}
    renamed = re.sub(r"[a-z](?:_\d+)?", lambda m: names.setdefault(m.group(), f"<{len(names)}>"), equation)
    kinds: dict[str, list[str]] = {}
    for label, members in re.findall(r"([a-z_]+)=\{(.*?)\}", tail):
        for m in members.split(", "):
            kinds.setdefault(m, []).append(label)
    rows = [(names[n], int(sizes[n]), () if sizes[n] == "1" else tuple(sorted(kinds.get(n, ())))) for n in names]
    return renamed, tuple(sorted(rows))


@dataclass(frozen=True)
class Difference:
    """Where a rule of ours differs from Shardy's on purpose: ``why``, and in which kinds."""

    why: str
    #: The kinds that we give instead of Shardy's, by theirs.
    kinds: Mapping[tuple[str, ...], tuple[str, ...]]


_WHOLE = {(): ("need_replication",)}
#: Shardy lets factors pass through that the operation reads whole: shards would not compute what the whole does
#: (the audit says so). Propagation is the same, because all kinds of factors propagate.
DIFFERENCES: Mapping[str, Difference] = {
    "top_k": Difference("k of k elements are sorted, not copied", _WHOLE),
    "approximate_top_k": Difference("all elements of the searched dimension are compared", _WHOLE),
    "pointwise_call": Difference("a Cholesky factor needs the whole matrix", _WHOLE),
    "decomposition": Difference("eigenvectors need the whole matrix", _WHOLE),
    "convolution": Difference(
        "a kernel that does not cover the input needs neighbours' elements", {("reduction",): ("permutation",)}
    ),
    "sort": Difference("a line is sorted between the devices that have it", {("need_replication",): ("permutation",)}),
    "triangular_solve": Difference("columns of the right side are solved one by one", {("need_replication",): ()}),
}


#: Operations for which releases before 0.12 have other rules than the current one, which ours follow.
OLDER_RULES = frozenset() if JAXLIB >= (0, 12) else frozenset(("reshape", "pad", "dynamic_update_slice", "convolution"))


def shardys_rules(text: str) -> list[str]:
    """The rule of the last operation of every function but ``main`` that has one, else empty."""
    from jaxlib.mlir import ir, passmanager

    with context():
        module = ir.Module.parse(text)
        pipeline = "builtin.module(func.func(sdy-populate-op-sharding-rules))"
        passmanager.PassManager.parse(pipeline).run(module.operation)
        out = []
        for function in module.body.operations:
            *_, op, _end = function.regions[0].blocks[0].operations
            rule = str(op.attributes["sdy.sharding_rule"]) if "sdy.sharding_rule" in op.attributes else ""
            out.append(rule.removeprefix("#sdy.op_sharding_rule<").removesuffix(">"))
    return out[:-1]


def our_rules(text: str) -> dict[str, list[Canonical]]:
    """The rules of a function, by its name; one operation of StableHLO can be several of HLO, or a call."""

    def rules(c: Computation) -> list[Canonical]:
        inner = [r for i in c if i.opcode == "call" for r in rules(i.attrs["to_apply"])]
        plain = [i for i in c if not is_data_flow(i.opcode) and i.opcode not in ("constant", "iota")]
        return [*inner, *(canonical(str(factor_rule(i))) for i in plain)]

    return {c.name.partition(".")[0]: rules(c) for c in read_stablehlo(text).computations}


def spread(rule: str) -> str:
    """The rule with the result's dimensions for scalars, which HLO broadcasts first."""
    return rule.replace("[]", rule.partition("->")[2].partition("(")[2].partition(")")[0])


def accepted(kind: str, theirs: Canonical, ours: Sequence[Canonical]) -> bool:
    """Is one of our rules theirs, or theirs with the kinds that `DIFFERENCES` allows?"""
    if theirs in ours or (kind == "reshape" and leading(theirs) in map(leading, ours)):
        return True
    allowed = DIFFERENCES.get(kind)
    if allowed is None:
        return False
    equation, rows = theirs
    for other, mine in ours:
        if other == equation and all(
            a[:2] == b[:2] and (a[2] == b[2] or _kinds_of(b) == allowed.kinds.get(_kinds_of(a)))
            for a, b in zip(rows, mine, strict=True)
        ):
            return True
    return False


def leading(rule: Canonical) -> Canonical:
    """What a reshape can spread: per dimension the factors before the first whole one, if both sides have them.

    Where nothing spreads, the two take the shapes apart differently; ours also keeps a minor end that both share.
    """
    equation, rows = rule
    whole = {name for name, _, kinds in rows if "need_replication" in kinds}
    dims = [[re.findall(r"<\d+>", d) for d in side.split(", ")] for side in equation.split("->")]
    kept = [[list(takewhile(lambda n: n not in whole, d)) for d in side] for side in dims]
    left, right = ({n for d in side for n in d} for side in kept)
    numbers: dict[str, int] = {}
    text = str([[[numbers.setdefault(n, len(numbers)) for n in d if n in left & right] for d in s] for s in kept])
    return text, tuple((str(numbers[name]), size, kinds) for name, size, kinds in rows if name in numbers)


def _kinds_of(row: tuple[str, int, tuple[str, ...]]) -> tuple[str, ...]:
    """Blocking aside: a factor that only one side has propagates nowhere."""
    return tuple(k for k in row[2] if k != "blocked_propagation")


@pytest.mark.parametrize("each", [12, pytest.param(300, marks=pytest.mark.full)])
def test_rules_are_shardys_over_shapes_and_attributes(
    each: int, record_property: Callable[[str, object], None]
) -> None:
    """Every operation that Shardy has a rule for, with seeded random shapes and attributes."""
    cases = list(operations(seed=4, each=each))
    text = one_module([t for _, t in cases])
    theirs, ours = shardys_rules(text), our_rules(text)
    bad: Counter[str] = Counter()
    lines = []
    compared = 0
    for n, ((kind, function), rule) in enumerate(zip(cases, theirs, strict=True)):
        expanded = kind == "broadcast" and re.search(r"\b\w=1\b", rule)
        if not rule or expanded:  # an expanded dimension is a reshape and a broadcast in HLO
            continue
        compared += 1
        if not accepted(kind, canonical(spread(rule) if kind in ("select", "clamp") else rule), ours[f"f{n}"]):
            bad[kind] += 1
            lines.append(f"{kind}: Shardy {rule}\n{function}  ours {ours[f'f{n}']}")
    record_property("figure: rules beside Shardy's", f"{compared:,} operations, {len(lines)} differ")
    assert not bad.keys() - OLDER_RULES, f"{bad} of {compared} rules differ\n" + "\n".join(lines[:10])
    assert compared > 0.9 * len(cases)


def test_rules_are_shardys() -> None:
    text = (Path(__file__).parent / "rules_program.mlir").read_text()
    printed = run_passes(text, "builtin.module(func.func(sdy-populate-op-sharding-rules))")
    functions = re.split(r"\n  func\.func", printed)[1:]
    compared = different = 0
    for n, function in enumerate(functions):
        theirs = [canonical(r) for r in re.findall(r"op_sharding_rule<(\(.*?)>}", function)]
        theirs = [r for r in theirs if r[1]]
        source = re.split(r"^func\.func", text, flags=re.MULTILINE)[n + 1]
        module = read_stablehlo("func.func @main" + source[source.index("(") :])
        ours = []
        for i in module.entry:
            if not is_data_flow(i.opcode) and i.opcode not in ("constant", "iota") and i.shape.leaves():
                rule = factor_rule(i)
                if rule.factors:
                    ours.append(canonical(str(rule)))
        missing = [r for r in theirs if not any(accepted(kind, r, ours) for kind in ("", *DIFFERENCES))]
        # Releases before 0.12 have other rules for a few operations.
        assert not missing or JAXLIB < (0, 12), "\n".join(f"Shardy: {r}" for r in missing)
        compared += len(theirs)
        different += len(missing)
    assert compared > 60
    assert different <= compared // 6
