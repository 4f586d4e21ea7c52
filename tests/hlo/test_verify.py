"""The verifier: a sound module passes, each broken rule is named with its instruction and source line."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from shardc.hlo.errors import ShardcError, VerificationError
from shardc.hlo.ir.build import Builder, binary_computation, make_instruction, make_module
from shardc.hlo.ir.groups import AxisGroups, ListGroups, ListPairs
from shardc.hlo.ir.ir import Alias, Computation, Instruction, Metadata, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify

F = array_shape("f32", 4)
SCALAR = array_shape("f32")
LINE = Metadata(source_file="train.py", source_line=7)


def parameter(index: int = 0) -> Instruction:
    return make_instruction("parameter", shape=F, index=index, name=f"p{index}")


def entry(*instructions: Instruction, root: Instruction | None = None) -> Module:
    return make_module("m", Computation("main", instructions, root if root is not None else instructions[-1]))


def sound() -> Module:
    b = Builder("main")
    x = b.parameter(F)
    total = b.add("reduce", x, b.constant(0.0, "f32"), dimensions=(0,), to_apply=binary_computation("add", "f32"))
    b.add("tuple", x, total)
    return make_module("m", b.build())


def test_sound_module_passes() -> None:
    verify(sound())


def test_names_may_repeat() -> None:
    x = parameter()
    one = make_instruction("negate", x, name="n")
    verify(entry(x, one, make_instruction("negate", one, name="n")))


def undefined_operand() -> Module:
    x = parameter()
    return entry(make_instruction("negate", x, name="n", metadata=LINE))


def operand_later() -> Module:
    x = parameter()
    n = make_instruction("negate", x, name="n")
    return entry(x, make_instruction("negate", n, name="early"), n)


def wrong_shape() -> Module:
    x = parameter()
    return entry(x, Instruction("negate", array_shape("f32", 5), (x,), name="n", metadata=LINE))


def wrong_reshape() -> Module:
    x = parameter()
    return entry(x, make_instruction("reshape", x, shape=array_shape("f32", 2, 3)))


def missing_attribute() -> Module:
    x = parameter()
    return entry(x, Instruction("transpose", F, (x,), {}))


def wrong_kind() -> Module:
    x = parameter()
    return entry(x, Instruction("transpose", F, (x,), {"dimensions": [0]}))


def unknown_op() -> Module:
    return entry(Instruction("frobnicate", F, ()))


def gap_in_parameters() -> Module:
    return entry(parameter(1))


def foreign_root() -> Module:
    return entry(parameter(), root=make_instruction("negate", parameter(), name="far"))


def twice() -> Module:
    x = parameter()
    return entry(x, x)


def wrong_callee() -> Module:
    x = parameter()
    body = binary_computation("add", "f32")
    return entry(x, Instruction("call", SCALAR, (x,), {"to_apply": body}))


def loop_that_changes_shape() -> Module:
    b = Builder("body")
    b.add("concatenate", *[b.parameter(F)] * 2, dimensions=(0,))
    c = Builder("condition")
    c.parameter(F)
    c.constant(True)
    x = parameter()
    return entry(x, Instruction("while", F, (x,), {"condition": c.build(), "body": b.build()}))


def callee_after_caller() -> Module:
    m = sound()
    return m.with_(computations=(m.entry, *m.computations[:-1]))


def callee_missing() -> Module:
    m = sound()
    return m.with_(computations=(m.entry,))


def no_such_device() -> Module:
    x = parameter()
    groups = ListGroups(((0, 4),))
    reduce = make_instruction("all-reduce", x, replica_groups=groups, to_apply=binary_computation("add", "f32"))
    return entry(x, reduce).with_(num_partitions=4)


def device_twice() -> Module:
    x = parameter()
    pairs = ListPairs(((0, 1), (0, 2)))
    return entry(x, make_instruction("collective-permute", x, source_target_pairs=pairs)).with_(num_partitions=4)


def wrong_mesh() -> Module:
    x = parameter()
    groups = AxisGroups(Mesh({"x": 2}), (AxisRef("x"),))
    gathered = make_instruction("all-gather", x, replica_groups=groups, dimensions=(0,))
    return entry(x, gathered).with_(num_partitions=4, partitioned=True)


def gather_of_wrong_size() -> Module:
    x = parameter()
    groups = ListGroups(((0, 1),))
    shape = array_shape("f32", 12)
    return entry(x, make_instruction("all-gather", x, shape=shape, replica_groups=groups, dimensions=(0,)))


def donated_nothing() -> Module:
    return sound().with_(donors=(3,))


def alias_of_nothing() -> Module:
    return sound().with_(aliases=(Alias((5,), 0),))


BROKEN: list[tuple[Callable[[], Module], str]] = [
    (undefined_operand, "%p0, is not defined earlier in %main\n  where: %n = negate, train.py:7"),
    (operand_later, "operand 0, %n, is not defined earlier"),
    (wrong_shape, r"shape is f32\[5\], but its operands give f32\[4\]\n  where: %n = negate, dimension 0, train.py:7"),
    (wrong_reshape, "4 elements"),
    (missing_attribute, "needs the attribute dimensions"),
    (wrong_kind, "attribute dimensions must be of kind ints"),
    (unknown_op, "unknown operation 'frobnicate'"),
    (gap_in_parameters, "parameter numbers of %main must be 0..n-1, found 1"),
    (foreign_root, "the root is not an instruction of %main"),
    (twice, "occurs twice"),
    (wrong_callee, "has 2 parameters, 1 arguments"),
    (loop_that_changes_shape, r"body %body returns f32\[8\], the loop carries f32\[4\]"),
    (callee_after_caller, "does not come last"),
    (callee_missing, "to_apply %add_f32 does not come before %main"),
    (no_such_device, "device 4 does not exist, the program is for 4"),
    (device_twice, "a device occurs twice in pairs"),
    (wrong_mesh, "groups are over 2 devices, but the program is for 4"),
    (gather_of_wrong_size, "groups of 2 members"),
    (donated_nothing, "parameter 3 is donated"),
    (alias_of_nothing, "no such element"),
]


@pytest.mark.parametrize(("build", "message"), BROKEN, ids=lambda c: getattr(c, "__name__", ""))
def test_broken_rules(build: Callable[[], Module], message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(build())


def test_layouts_do_not_matter() -> None:
    from shardc.hlo.ir.types import Layout, Shape

    x = make_instruction("parameter", shape=Shape(F.dtype, (2, 3), layout=Layout((0, 1))), index=0)
    verify(entry(x, Instruction("negate", array_shape("f32", 2, 3), (x,))))


def test_tuple_parameters() -> None:
    b = Builder("main")
    p = b.parameter(tuple_shape(F, SCALAR))
    b.add("get-tuple-element", p, index=1)
    verify(make_module("m", b.build()))


@pytest.mark.parametrize(
    ("header", "root", "line"),
    [
        ("", "f32[8,5] add(x, x)", 5),
        ("", 'f32[8,5] add(x, x), metadata={op_name="q" source_file="model.py" source_line=3}', 5),
        ("", "f32[8,4] broadcast(x), dimensions={7,9}", 5),
        ("", 'f32[8,4] custom-call(x), custom_call_target="a", operand_layout_constraints={f32[8,}', 5),
        ("", 'f32[8,4] custom-call(x), custom_call_target="a", operand_layout_constraints={f32[8,<=z]}', 5),
        ("", "f32[8,4] add(x, x), sharding={devices=[2,1]0,0}", 5),
        (", entry_computation_layout={(f32[8,)->f32[8,4]}", "f32[8,4] add(x, x)", 1),
        (", input_output_alias={ {}: (7, {}, may-alias) }", "f32[8,4] add(x, x)", 1),
        (", input_output_alias={ {3}: (0, {}, may-alias) }", "f32[8,4] add(x, x)", 1),
        (", buffer_donor={ (5, {}) }", "f32[8,4] add(x, x)", 1),
    ],
)
def test_messages_name_the_file_and_the_line(header: str, root: str, line: int) -> None:
    text = f"HloModule m{header}\n\nENTRY main {{\n  x = f32[8,4] parameter(0)\n  ROOT s = {root}\n}}\n"
    with pytest.raises(ShardcError) as caught:
        verify(read_hlo(text, "step.hlo"))
    assert re.search(rf"\bstep\.hlo:{line}\b", str(caught.value.where)), caught.value


@pytest.mark.parametrize("before", ["", "ROOT ", "y = f32[8,4] negate(x)\n  ROOT "])
def test_messages_name_the_column(before: str) -> None:
    text = f"HloModule m\nENTRY main {{\n  x = f32[8,4] parameter(0)\n  {before}s = f32[8,5] add(x, x)\n}}\n"
    at = text.index("s = f32[8,5]")
    line, column = text.count("\n", 0, at) + 1, at - text.rindex("\n", 0, at)
    named = text.replace("add(x, x)", 'add(x, x), metadata={source_file="model.py" source_line=3 source_column=9}')
    for written, places in ((text, ""), (named, "model.py:3:9, ")):
        with pytest.raises(VerificationError) as caught:
            verify(read_hlo(written, "a:b.hlo"))
        assert str(caught.value.where) == f"%s = add, dimension 1, {places}a:b.hlo:{line}:{column}"


GATHER = """module @m attributes {mhlo.num_partitions = 2 : i32} {
  func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32> ALIAS) -> tensor<8xf32> {
    %g = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0,1],[2,3]]> : tensor<2x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>} : (tensor<4xf32>) -> tensor<8xf32> LOC
    return %g : tensor<8xf32>
  }
}"""


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, "step.mlir:3:10"),
        ({"LOC": 'loc("train.py":7:3)'}, "train.py:7:3"),
        ({"ALIAS": "{tf.aliasing_output = 1 : i32}"}, "step.mlir:2:38"),
        ({"ALIAS": '{tf.aliasing_output = "0"}'}, "step.mlir:2:38"),
        ({"num_partitions = 2 : i32": "num_partitions = 0 : i32"}, "step.mlir"),
        ({"num_partitions = 2 : i32": 'num_replicas = "2"'}, "step.mlir"),
    ],
)
def test_messages_on_mlir_name_the_file_line_and_column(changes: dict[str, str], place: str) -> None:
    text = GATHER
    for old, new in {**changes, "LOC": changes.get("LOC", ""), "ALIAS": changes.get("ALIAS", "")}.items():
        text = text.replace(old, new)
    with pytest.raises(VerificationError) as caught:
        verify(read_stablehlo(text, "step.mlir"))
    assert str(caught.value.where).endswith(place), caught.value
