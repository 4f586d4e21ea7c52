"""Shape inference: one table for the whole op set; shapes, and errors that say what and where."""

from __future__ import annotations

from typing import Any

import pytest

from shardc.hlo.errors import VerificationError
from shardc.hlo.ir.build import binary_computation, make_instruction
from shardc.hlo.ir.groups import AxisGroups, IotaGroups, ListGroups, ListPairs
from shardc.hlo.ir.infer import RULES, infer_shape
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import OPS, ConvDims, Window, WindowDim
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape


def value(dtype: str, *dims: int) -> Instruction:
    return make_instruction("parameter", shape=array_shape(dtype, *dims), index=0, name="p")


def test_rules_cover_the_op_set() -> None:
    assert set(RULES) == set(OPS)
    for opcode, rule in RULES.items():
        known = rule.infer is not None or rule.check is not None
        assert known != bool(rule.why), f"{opcode} needs a rule or a reason for having none"


ADD = binary_computation("add", "f32")
F = "f32"
CONV = {
    "window": Window((WindowDim(3, stride=2, pad_low=1, pad_high=1), WindowDim(2, rhs_dilate=2))),
    "dim_labels": ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)),
}
GATHER = {
    "offset_dims": (1,),
    "collapsed_slice_dims": (0,),
    "start_index_map": (0,),
    "index_vector_dim": 1,
    "slice_sizes": (1, 5),
}
SCATTER = {
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
    "to_apply": ADD,
}
MESH = Mesh({"x": 2, "y": 4})
OVER_Y = AxisGroups(MESH, (AxisRef("y"),))
CASES: list[tuple[str, list[Instruction], dict[str, Any], Shape]] = [
    ("add", [value(F, 2, 3), value(F, 2, 3)], {}, array_shape(F, 2, 3)),
    ("add", [value("bf16", 2), value(F, 2)], {}, array_shape(F, 2)),
    ("abs", [value("c64", 2)], {}, array_shape(F, 2)),
    ("complex", [value("f64", 2), value("f64", 2)], {}, array_shape("c128", 2)),
    ("compare", [value(F, 2), value(F, 2)], {"direction": "LT"}, array_shape("pred", 2)),
    ("select", [value("pred"), value(F, 2), value(F, 2)], {}, array_shape(F, 2)),
    ("clamp", [value(F), value(F, 2), value(F, 2)], {}, array_shape(F, 2)),
    (
        "dot",
        [value(F, 7, 2, 3), value(F, 7, 3, 4)],
        {
            "lhs_batch_dims": (0,),
            "rhs_batch_dims": (0,),
            "lhs_contracting_dims": (2,),
            "rhs_contracting_dims": (1,),
        },
        array_shape(F, 7, 2, 4),
    ),
    ("reduce", [value(F, 2, 3, 4), value(F)], {"dimensions": (0, 2), "to_apply": ADD}, array_shape(F, 3)),
    ("topk", [value(F, 2, 9)], {"k": 3}, tuple_shape(array_shape(F, 2, 3), array_shape("s32", 2, 3))),
    ("transpose", [value(F, 2, 3, 4)], {"dimensions": (2, 0, 1)}, array_shape(F, 4, 2, 3)),
    ("concatenate", [value(F, 2, 3), value(F, 2, 5)], {"dimensions": (1,)}, array_shape(F, 2, 8)),
    ("slice", [value(F, 9, 4)], {"slice": ((1, 8, 3), (0, 4, 1))}, array_shape(F, 3, 4)),
    ("pad", [value(F, 5), value(F)], {"padding": ((-1, 2, 1),)}, array_shape(F, 10)),
    ("gather", [value(F, 9, 5), value("s32", 7, 1)], GATHER, array_shape(F, 7, 5)),
    ("scatter", [value(F, 9, 5), value("s32", 7, 1), value(F, 7, 5)], SCATTER, array_shape(F, 9, 5)),
    ("dynamic-slice", [value(F, 9), value("s32")], {"dynamic_slice_sizes": (4,)}, array_shape(F, 4)),
    ("convolution", [value(F, 8, 9, 9, 3), value(F, 3, 2, 3, 16)], CONV, array_shape(F, 8, 5, 7, 16)),
    (
        "reduce-window",
        [value(F, 9), value(F)],
        {"window": Window((WindowDim(3, stride=2),)), "to_apply": ADD},
        array_shape(F, 4),
    ),
    ("fft", [value(F, 2, 8)], {"fft_type": "RFFT", "fft_length": (8,)}, array_shape("c64", 2, 5)),
    ("fft", [value("c64", 2, 5)], {"fft_type": "IRFFT", "fft_length": (8,)}, array_shape(F, 2, 8)),
    ("tuple", [value(F, 2), value("s32")], {}, tuple_shape(array_shape(F, 2), array_shape("s32"))),
    ("all-reduce", [value(F, 8)], {"replica_groups": OVER_Y, "to_apply": ADD}, array_shape(F, 8)),
    ("all-gather", [value(F, 8, 2)], {"replica_groups": OVER_Y, "dimensions": (1,)}, array_shape(F, 8, 8)),
    (
        "reduce-scatter",
        [value(F, 8, 2)],
        {"replica_groups": IotaGroups(2, 4, (8,)), "dimensions": (0,), "to_apply": ADD},
        array_shape(F, 2, 2),
    ),
    ("all-to-all", [value(F, 8, 2)], {"replica_groups": OVER_Y, "dimensions": (0,)}, array_shape(F, 8, 2)),
    (
        "all-to-all",
        [value(F, 2), value(F, 2)],
        {"replica_groups": ListGroups(((0, 1),))},
        tuple_shape(array_shape(F, 2), array_shape(F, 2)),
    ),
    ("collective-permute", [value(F, 2)], {"source_target_pairs": ListPairs(((0, 1),))}, array_shape(F, 2)),
    (
        "all-gather-start",
        [value(F, 2)],
        {"replica_groups": OVER_Y, "dimensions": (0,)},
        tuple_shape(array_shape(F, 2), array_shape(F, 8)),
    ),
    ("partition-id", [], {}, array_shape("u32")),
]


@pytest.mark.parametrize(("opcode", "operands", "attrs", "shape"), CASES, ids=lambda c: c if isinstance(c, str) else "")
def test_shapes(opcode: str, operands: list[Instruction], attrs: dict[str, Any], shape: Shape) -> None:
    assert infer_shape(opcode, operands, attrs) == shape


@pytest.mark.parametrize("opcode", ["parameter", "iota", "reshape", "broadcast", "convert", "custom-call", "rng"])
def test_shapes_that_must_be_given(opcode: str) -> None:
    operands = [value(F, 2)] * (OPS[opcode].arity or 0)
    attrs = dict.fromkeys(OPS[opcode].required, 0)
    with pytest.raises(VerificationError, match="does not follow from its operands"):
        infer_shape(opcode, operands, attrs)


WRONG: list[tuple[str, list[Instruction], dict[str, Any], str]] = [
    ("frobnicate", [], {}, "unknown operation 'frobnicate'"),
    ("add", [value(F, 2)], {}, "takes 2 operands, not 1"),
    ("add", [value(F, 2, 3), value(F, 2, 4)], {}, "size 4, operand 0 has size 3.*\n.*dimension 1"),
    ("add", [value(F, 2), value("s32", 2)], {}, "element type s32"),
    ("compare", [value(F), value(F)], {}, "needs the attribute direction"),
    ("sine", [value("s32")], {}, "element type s32 is not one of: float, complex"),
    ("transpose", [value(F, 2, 3)], {"dimensions": (0, 0)}, "names a dimension twice"),
    ("slice", [value(F, 4)], {"slice": ((0, 5, 1),)}, "size 4\n.*dimension 0"),
    (
        "dot",
        [value(F, 2, 3), value(F, 4, 5)],
        {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)},
        "contracting dimension.*differ",
    ),
    ("reduce", [value(F, 2), value(F)], {"dimensions": (1,), "to_apply": ADD}, "dimension 1 of an array of rank 1"),
    ("all-gather", [value(F, 2)], {"dimensions": (0,)}, "group size is unknown"),
    ("reduce-scatter", [value(F, 6)], {"replica_groups": OVER_Y, "dimensions": (0,), "to_apply": ADD}, "divide"),
    ("get-tuple-element", [value(F, 2)], {"index": 0}, "has no element 0"),
    ("gather", [value(F, 9, 5), value("s32", 7, 2)], GATHER, "index vectors have 2 entries"),
]


@pytest.mark.parametrize(
    ("opcode", "operands", "attrs", "message"), WRONG, ids=lambda c: c if isinstance(c, str) else ""
)
def test_errors(opcode: str, operands: list[Instruction], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(VerificationError) as e:
        infer_shape(opcode, operands, attrs)
    assert e.match("(?s)" + message)
    assert f"{opcode}(" in str(e.value)
