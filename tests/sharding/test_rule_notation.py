"""Factor rules that users write: their notation, their errors, and where they may stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_programs import operations

from shardc.hlo.config import Config
from shardc.hlo.errors import AnnotationError
from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.ir.custom_calls import CustomCall
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.equivalence import gather_results, scatter_arguments
from shardc.sharding.propagate import propagate
from shardc.sharding.rules import conservative_rule, factor_rule, is_data_flow
from shardc.sharding.rules.factor_rule import FactorKind
from shardc.sharding.rules.notation import parse_rule
from shardc.stages.stages import Program

MATMUL = "([i, k], [k, j])->([i, j]) {i=4, j=16, k=8} reduction={k}"


def op(opcode: str, dims: tuple[int, ...], *operands: tuple[int, ...], **attrs: Any) -> Instruction:
    made = [Instruction("parameter", array_shape("f32", *d), (), {"index": n}) for n, d in enumerate(operands)]
    return Instruction(opcode, array_shape("f32", *dims), made, attrs)


def call(target: str, results: list[tuple[int, ...]], *operands: tuple[int, ...], **frontend: str) -> Instruction:
    made = [Instruction("parameter", array_shape("f32", *d), (), {"index": n}) for n, d in enumerate(operands)]
    shapes = [array_shape("f32", *d) for d in results]
    shape = shapes[0] if len(shapes) == 1 else tuple_shape(*shapes)
    attrs = {"custom_call_target": target, "frontend_attributes": tuple(frontend.items())}
    return Instruction("custom-call", shape, made, attrs, name="call.1")


def test_printed_rules_read_back() -> None:
    """Over the rules of every operation: text and meaning survive."""
    seen = 0
    for _, text in operations(seed=9, each=2):
        for i in read_stablehlo(text).entry:
            if is_data_flow(i.opcode) or i.opcode in ("constant", "iota"):
                continue
            rule = factor_rule(i)
            sides = [leaf.dims for o in i.operands for leaf in o.shape.leaves()], [s.dims for s in i.shape.leaves()]
            again = parse_rule(str(rule), *sides)
            assert str(again) == str(rule)
            assert (again.factors, again.operands, again.results) == (rule.factors, rule.operands, rule.results)
            seen += 1
    assert seen > 60


@pytest.mark.parametrize(
    "text",
    [
        MATMUL,
        f"#sdy.op_sharding_rule<{MATMUL}>",
        f"#sdy.op_sharding_rule<{MATMUL}, custom>",
        "([i, k], [k, j])->([i, j]) reduction={k}",
    ],
)
def test_forms_of_one_rule(text: str) -> None:
    rule = parse_rule(text, [(4, 8), (8, 16)], [(4, 16)])
    assert str(rule) == MATMUL
    assert rule.reduction == "sum"


def test_sizes_follow_from_dimensions() -> None:
    assert str(parse_rule("([ij])->([i, j])", [(8,)], [(2, 4)])) == "([ij])->([i, j]) {i=2, j=4}"
    filled = "([ij], [k])->([i]) {i=2, j=3, k=5} need_replication={k} blocked_propagation={k}"
    assert str(parse_rule("([ij], [*])->([i]) {j=3}", [(6,), (5,)], [(2,)])) == filled


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.text("()[]ijkz_1={},-> *", max_size=30))
def test_garbage_is_our_error_or_a_rule(text: str) -> None:
    try:
        rule = parse_rule(text, [(4, 8)], [(4,)])
    except AnnotationError as e:
        assert e.what
    else:
        assert len(rule.operands[0]) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "is not a factor rule"),
        ("([i, k])->([i, j]) {i=4, k=8, j=16}", "1 operands, but the operation has 2"),
        ("([i, k], [k, j])->([i]) {i=4, k=8, j=16}", "gives 1 dimensions to result 0, which has 2"),
        ("([i, i], [k, j])->([i, j]) {i=4, k=8, j=16}", "uses a factor twice in operand 0"),
        ("([i, A], [k, j])->([i, j]) {i=4}", "is not a list of factors"),
        ("([i, k], [k, j])->([i, j]) {i=4, k=x}", "is not a factor and its size"),
        ("([i, k], [k, j])->([i, j]) {i=4, j=16, k=8, l=2}", "factor l of the rule is unused"),
        ("([i, kl], [km, j])->([i, j])", "has no size"),
        ("([i, kl], [k, j])->([i, j]) {k=8, l=1}", "size 1 shares a dimension"),
        ("([i, k], [k, j])->([i, j]) reduction={z}", "names an unknown factor"),
        ("([i, k], [k, j])->([i, j]) folding={k}", "unknown part 'folding'"),
        ("([i, k], [k, j])->([i, j]) reduction={k} permutation={k}", "factor k of the rule has two kinds"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        parse_rule(text, [(4, 8), (8, 16)], [(4, 16)])


def test_a_wrong_rule_on_a_call_names_the_call() -> None:
    with pytest.raises(AnnotationError, match="gives 2 dimensions to result 0") as caught:
        factor_rule(call("mine", [(4,)], (4,), **{"xla.sdy.sharding_rule": "([i])->([i, j])"}))
    assert "%call.1" in str(caught.value)


PROGRAM = """
sdy.mesh @mesh = <["a"=2, "b"=2]>
func.func @main(%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {"b"}]>}) -> tensor<8xf32> {
  %0 = stablehlo.custom_call @mine(%x) {sdy.sharding_rule =
    #sdy.op_sharding_rule<([i, j])->([i]) {i=8, j=4} need_replication={j}, custom>} : (tensor<8x4xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""


def test_rules_arrive_with_stablehlo_and_survive_hlo_text() -> None:
    module = read_stablehlo(PROGRAM)
    for m in (module, read_hlo(print_module(module, named_shardings=True))):
        found = next(i for i in propagate(m).module.entry if i.opcode == "custom-call")
        assert str(found.sharding) == "[{a}]"
        assert str(factor_rule(found)) == "([i, j])->([i]) {i=8, j=4} need_replication={j}"


def test_rules_through_the_api() -> None:
    """A registered call with a rule runs on shards; without one it is gathered first."""
    text = PROGRAM.replace("sdy.sharding_rule", "other")
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    for rule in ("([i, j])->([i]) need_replication={j}", ""):
        program = Program(read_stablehlo(text), config=Config())
        meaning = CustomCall(evaluate=lambda call, a: a.sum(1), sharding_rule=rule)
        module = program.with_custom_calls({"mine": meaning}).partition().module
        call = next(i for i in module.entry if i.opcode == "custom-call")
        assert (call.operands[0].shape.dims[0] < 8) == bool(rule)
        assert call.operands[0].shape.dims[1] == 4
        results = evaluate_spmd(module, scatter_arguments(module, [x]), custom_calls={"mine": meaning})
        np.testing.assert_array_equal(gather_results(module, results)[0], x.sum(1))


def test_batch_dimensions_of_linear_algebra() -> None:
    marked = factor_rule(call("anything", [(6, 4), (6,)], (6, 4, 4), num_batch_dims="1"))
    assert str(marked).startswith("([i, j, k])->([i, l], [i]) {i=6, ")
    assert marked.of_kind(FactorKind.PASS_THROUGH) == (0,)
    lapack = factor_rule(call("lapack_sgetrf_ffi", [(2, 3, 4, 5), (2, 3, 4), (2, 3)], (2, 3, 4, 5)))
    assert [lapack.factors[f].size for f in lapack.of_kind(FactorKind.PASS_THROUGH)] == [2, 3]
    assert all(t[:2] == ((0,), (1,)) for t in lapack.tensors)
    single = factor_rule(call("lapack_spotrf_ffi", [(4, 4), ()], (4, 4)))
    assert not single.of_kind(FactorKind.PASS_THROUGH)


@pytest.mark.parametrize(
    ("source", "target", "shown"),
    [
        (("f32", (2, 4)), ("u8", (2, 16)), "([i, j])->([i, jk]) {i=2, j=4, k=4} need_replication={k}"),
        (("u8", (32,)), ("f32", (2, 4)), "([ijk])->([i, j]) {i=2, j=4, k=4} need_replication={k}"),
        (("f32", (4, 6)), ("s32", (24,)), "([i, j])->([ij]) {i=4, j=6}"),
    ],
)
def test_bitcasts_have_compound_factors(source: Any, target: Any, shown: str) -> None:
    operand = Instruction("parameter", array_shape(source[0], *source[1]), (), {"index": 0})
    assert str(factor_rule(Instruction("bitcast", array_shape(target[0], *target[1]), (operand,)))) == shown


CONV = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
WINDOW = Window((WindowDim(3, 1, 1, 1), WindowDim(3, 1, 1, 1)))


@pytest.mark.parametrize(
    ("instruction", "blocked"),
    [
        (op("slice", (4, 3), (4, 6), slice=((0, 4, 1), (0, 3, 1))), [6]),
        (op("pad", (4, 7), (4, 6), (), padding=((0, 0, 0), (1, 0, 0))), [6]),
        (op("concatenate", (4, 12), (4, 6), (4, 6), dimensions=(1,)), [12]),
        (op("reverse", (4, 6), (4, 6), dimensions=(1,)), []),
        (op("convolution", (2, 8, 8, 5), (2, 8, 8, 6), (3, 3, 6, 5), window=WINDOW, dim_labels=CONV), [8, 3, 8, 3]),
    ],
)
def test_conservative_rules_block_moving_dimensions(instruction: Instruction, blocked: list[int]) -> None:
    assert not any(f.blocked for f in factor_rule(instruction).factors)
    rule = conservative_rule(instruction)
    assert [f.size for f in rule.factors if f.blocked] == blocked
    assert conservative_rule(instruction) is rule
