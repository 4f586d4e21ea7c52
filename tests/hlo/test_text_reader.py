"""The HLO text reader: accepted forms, what it keeps, and errors with their places."""

from __future__ import annotations

import random

import numpy as np
import pytest
from text_support import FULL

from shardc.hlo.errors import Location, ParseError, ShardcError, UnsupportedError, VerificationError
from shardc.hlo.ir.groups import AxisGroups, IotaGroups, ListGroups
from shardc.hlo.ir.ir import Alias, Instruction, Module
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.sharding import Sharding, TileSharding
from shardc.hlo.ir.types import Layout, array_shape
from shardc.hlo.text.equal import same_module
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify


def entry(*lines: str, before: str = "") -> Module:
    return read_hlo(before + "ENTRY e {\n  " + "\n  ".join(lines) + "\n}\n")


def only(*lines: str, before: str = "") -> Instruction:
    return entry(*lines, before=before).entry.root


ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"


def test_full_form() -> None:
    module = read_hlo(FULL, "step.hlo")
    assert (module.name, module.num_partitions, module.replica_count) == ("jit_step", 8, 2)
    assert module.aliases == (Alias((0,), 0, (), True), Alias((1,), 1, (), False))
    assert module.donors == (1,)
    assert module.arg_names == ("state['x']", "")
    assert module.source_file == "step.hlo"
    assert module.attrs["is_scheduled"] is True
    assert module.attrs["allow_spmd_sharding_propagation_to_output"] == (True, False)
    assert not module.partitioned
    assert [c.name for c in module.computations] == ["add", "main"]
    assert [i.name for i in module.entry] == ["x", "w", "wide", "y", "zero", "total", "out"]
    x, _, _, y, _, total, out = module.entry.instructions
    assert x.sharding == TileSharding("tiled", (4, 2), reshape=(2, 4), transpose=(1, 0))
    assert isinstance(out.sharding, tuple) and out.sharding[0] == TileSharding("replicated")
    assert y.source == "step.py:12"
    assert total.attrs["to_apply"] is module.computations[0]
    assert y.operands == (x, module.entry.instructions[2])


def test_default_layouts_are_dropped_and_others_kept() -> None:
    i = only("ROOT p = f32[2,3]{1,0} parameter(0)")
    assert i.shape is array_shape("f32", 2, 3)
    i = only("ROOT p = (f32[2,3]{0,1:T(2,4)(2,1)S(1)}, s32[]{:T(128)}, token[]) parameter(0)")
    assert i.shape.elements[0].layout == Layout((0, 1), "T(2,4)(2,1)S(1)")
    assert i.shape.elements[1].layout == Layout((), "T(128)")
    assert i.shape.elements[2].is_token
    assert only("ROOT p = f32[<=5,3] parameter(0)").shape.dynamic == (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "e { ROOT x = f32[4] parameter(0) }",
        "HloModule m\ne { x = f32[4] parameter(0) }",
        "ENTRY %e (x: f32[4]) -> f32[4] { ROOT %x = f32[4] parameter(0) }",
        'HloModule m:\nENTRY e { ROOT x = f32[4]{0} parameter(0) }, execution_thread="main"',
    ],
)
def test_short_forms(text: str) -> None:
    module = read_hlo(text)
    assert module.entry.root.opcode == "parameter"
    assert module.entry.root.shape == array_shape("f32", 4)


def test_single_instruction_makes_parameters_of_its_operands() -> None:
    module = read_hlo("f32[2,2] dot(f32[2,3] x, f32[3,2] y), lhs_contracting_dims={1}, rhs_contracting_dims={0}")
    assert [p.name for p in module.parameters] == ["x", "y"]
    assert module.entry.root.attrs["lhs_contracting_dims"] == (1,)


def test_shapes_that_are_left_out_are_inferred() -> None:
    module = entry("x = f32[2,3] parameter(0)", "ROOT y = transpose(x), dimensions={1,0}")
    assert module.entry.root.shape.dims == (3, 2)
    with pytest.raises(ParseError, match="needs the shape of its result"):
        entry("x = f32[2,3] parameter(0)", "ROOT y = reshape(x)")


def test_nested_operands_tuple_elements_and_inline_computations() -> None:
    root = only("t = (f32[2], (s32[], f32[3])) parameter(0)", "ROOT r = f32[3] abs(f32[3] negate(%t#1#1))")
    negate = root.operands[0]
    assert (root.opcode, negate.opcode) == ("abs", "negate")
    assert [negate.operands[0].attrs["index"], negate.operands[0].operands[0].attrs["index"]] == [1, 1]
    root = only(
        "x = f32[4] parameter(0)",
        "z = f32[] constant(0)",
        "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply={",
        "  a = f32[] parameter(0)",
        "  b = f32[] parameter(1)",
        "  ROOT m = f32[] maximum(a, b)",
        "}",
    )
    assert root.attrs["to_apply"].root.opcode == "maximum"


def test_asynchronous_wrappers_in_short_spelling() -> None:
    module = entry(
        "p = f32[10] parameter(0)",
        's = ((f32[10]), f32[20], s32[]) custom-call-start(p), async_execution_thread="x", custom_call_target="foo"',
        "u = ((f32[10]), f32[20], s32[]) custom-call-update(s)",
        "ROOT d = f32[20] custom-call-done(u)",
    )
    start, update, done = module.entry.instructions[1:]
    assert [i.opcode for i in (start, update, done)] == ["async-start", "async-update", "async-done"]
    assert start.attrs["async_execution_thread"] == "x"
    assert start.attrs["calls"].root.attrs == {"custom_call_target": "foo"}
    with pytest.raises(ParseError, match="must belong to a call-start"):
        entry(
            "p = f32[10] parameter(0)",
            's = ((f32[10]), f32[20], s32[]) custom-call-start(p), custom_call_target="foo"',
            "ROOT d = f32[20] call-done(s)",
        )


def test_attribute_values() -> None:
    conv = only(
        "x = f32[1,8,8,3] parameter(0)",
        "k = f32[3,3,3,4] parameter(1)",
        "ROOT c = f32[1,4,8,4] convolution(x, k), window={size=3x3 stride=2x1 pad=1_0x1_1 rhs_reversal=0x1},"
        " dim_labels=b01f_01io->b01f, feature_group_count=1, operand_precision={highest,default}",
    )
    assert conv.attrs["window"] == Window((WindowDim(3, 2, 1, 0), WindowDim(3, 1, 1, 1, reversal=True)))
    assert conv.attrs["dim_labels"] == ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    assert conv.attrs["operand_precision"] == ("highest", "default")
    sliced = only("x = f32[9,9] parameter(0)", "ROOT s = f32[3,9] slice(x), slice={[0:9:3], [0:9]}")
    assert sliced.attrs["slice"] == ((0, 9, 3), (0, 9, 1))
    padded = only(
        "x = f32[] parameter(0)", "y = f32[1,2] parameter(1)", "ROOT s = f32[5,1] pad(y, x), padding=1_2_1x-1_0"
    )
    assert padded.attrs["padding"] == ((1, 2, 1), (-1, 0, 0))
    call = only(
        'ROOT c = f32[2] custom-call(), custom_call_target="a\\"b", literal=s32[2]{0} {1, 2}, '
        'frontend_attributes={k="v",d={"a": [1]}}, backend_config={"n":"x}y"}'
    )
    assert call.attrs["custom_call_target"] == 'a"b'
    assert call.attrs["literal"].array.tolist() == [1, 2]
    assert call.attrs["frontend_attributes"] == (("k", "v"), ("d", '{"a": [1]}'))
    assert call.attrs["backend_config"] == '{"n":"x}y"}'
    quoted = only('ROOT c = f32[2] custom-call(), custom_call_target="t", backend_config="a \\"b\\""')
    assert quoted.attrs["backend_config"] == 'a "b"'


def test_groups_and_shardings() -> None:
    def groups(text: str) -> object:
        line = f"ROOT r = f32[4] all-reduce(x), replica_groups={text}, to_apply=add"
        return only("x = f32[4] parameter(0)", line, before=ADD).attrs["replica_groups"]

    assert groups("{{0,1},{2,3}}") == ListGroups(((0, 1), (2, 3)))
    assert groups("{}") == ListGroups(())
    assert groups("[2,4]<=[4,2]T(1,0)") == IotaGroups(2, 4, (4, 2), (1, 0))
    named = groups("mesh['x'=2,'y'=4], device_ids=(7,6,5,4,3,2,1,0) {'y':(2)2,'x'}")
    assert isinstance(named, AxisGroups) and named.group_size == 4
    sharded = only("ROOT x = f32[4,4] parameter(0), sharding={mesh['x'=2,'y'=4], [{'y':(1)2, ?}, {}]}").sharding
    assert isinstance(sharded, Sharding) and str(sharded) == "[{y:(1)2, ?}, {}]"


def test_stack_tables_give_source_lines() -> None:
    text = """HloModule m

FileNames
1 "a.py"
2 "b \\"quoted\\".py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}
2 {file_name_id=2 function_name_id=1 line=7 end_line=8 column=2 end_column=4}

StackFrames
1 {file_location_id=1}
2 {file_location_id=2 parent_frame_id=1}

ENTRY e {
  ROOT x = f32[] parameter(0), metadata={op_name="x" stack_frame_id=2}
}
"""
    module = read_hlo(text)
    assert module.entry.root.source == 'b "quoted".py:7'
    assert module.entry.root.metadata is not None and module.entry.root.metadata.stack_frame_id == 2


def test_control_predecessors_and_rare_metadata_are_kept() -> None:
    root = only(
        "x = f32[] parameter(0)",
        'ROOT y = f32[] negate(x), control-predecessors={%x}, metadata={scheduling_name="s"}, origin={{"v"}}',
    )
    assert root.attrs["control-predecessors"] == ("x",)
    assert root.attrs["metadata_extra"] == 'scheduling_name="s"'
    assert root.attrs["origin"] == '{{"v"}}'


@pytest.mark.parametrize(
    ("dtype", "attribute", "expected"),
    [
        ("f32", "order=TOTAL", "TOTALORDER"),
        ("f32", "order=PARTIAL", None),
        ("f32", "type=TOTALORDER", "TOTALORDER"),
        ("s32", "order=TOTAL", None),
    ],
)
def test_both_spellings_of_total_order(dtype: str, attribute: str, expected: str | None) -> None:
    root = only(f"x = {dtype}[] parameter(0)", f"ROOT y = pred[] compare(x, x), direction=LT, {attribute}")
    assert root.attrs.get("type") == expected and "order" not in root.attrs


def test_manual_parameters_and_result_mean_partitioned() -> None:
    text = "HloModule m, num_partitions=2\nENTRY e {{ ROOT x = f32[4] parameter(0), sharding={{{}}} }}"
    assert read_hlo(text.format("manual")).partitioned
    assert not read_hlo(text.format("replicated")).partitioned


@pytest.mark.parametrize(
    ("body", "line", "column", "message"),
    [
        ("x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(z)", 3, 26, "'z' does not exist"),
        ("ROOT x = f33[4] parameter(0)", 2, 12, "unknown element type 'f33'"),
        ("ROOT x = f32[4 parameter(0)", 2, 12, "an opcode"),
        ("x = f32[4] parameter(0)\n  x = f32[4] parameter(1)", 3, 3, "defined twice"),
        ("x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(x, x)", 3, 19, "takes 1 operands, found 2"),
        ("x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(x), dims={1}", 3, 30, "no attribute 'dims'"),
        ("x = f32[4] parameter(0)\n  ROOT y = f32[4] reverse(x), dimensions={a}", 3, 42, "expected integers"),
        ("x = f32[4] parameter(0)\n  ROOT y = f32[4] reverse(x)", 3, 19, "lacks the attribute dimensions"),
        ("x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(f32[5] x)", 3, 26, "written as f32[5]"),
        ("ROOT x = f32[4] parameter(0), sharding={devices=[2]0,1,2}", 2, 60, "2 tiles, but 3 devices"),
        ("x = f32[4] parameter(1)", 2, 1, "without gaps"),
        ("x = f32[] parameter(0)\n  ROOT y = f32[] call(x), to_apply=nowhere", 3, 36, "'nowhere' does not exist"),
        ("x = f32[] parameter(0), metadata={op_name=3}", 2, 37, "metadata"),
        ("ROOT x = f32[] parameter(0)\n  ROOT y = f32[] negate(x)", 3, 3, "more than one ROOT"),
        ("x = s8[] constant(200)", 2, 21, "does not fit s8"),
        ("x = s8[2] constant({1,{2}})", 2, 25, "nested"),
        ("ROOT x = f32[4]{1} parameter(0)", 2, 12, "not a permutation"),
        ("x = bf16[] constant(nan(0x80))", 2, 23, "payload"),
        ("x = f32[4] custom-call(), custom_call_target=3", 2, 48, "quoted string"),
    ],
)
def test_errors_name_the_place(body: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_hlo(f"ENTRY e {{\n  {body}\n}}\n", "bad.hlo")
    where = caught.value.where
    assert isinstance(where, Location)
    assert message in str(caught.value).replace("\n", " "), str(caught.value)
    if "gaps" not in message:
        assert (where.file, where.line, where.column) == ("bad.hlo", line, column), str(caught.value)


def test_unknown_opcode_lists_near_names() -> None:
    with pytest.raises(UnsupportedError) as caught:
        entry("x = f32[4] parameter(0)", "ROOT y = f32[4] mutliply(x, x)")
    assert "multiply" in str(caught.value)
    assert isinstance(caught.value.where, Location) and caught.value.where.line == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HloModule m",
        "HloModule m, what=1\nENTRY e { x = f32[] parameter(0) }",
        "ENTRY e { }",
        "ENTRY e { x = f32[] parameter(0)",
        "ENTRY e { x = f32[] parameter(0) } }",
        "/* never closed\nENTRY e { x = f32[] parameter(0) }",
        "a { x = f32[] parameter(0) }\na { x = f32[] parameter(0) }",
        "ENTRY a { x = f32[] parameter(0) }\nENTRY b { x = f32[] parameter(0) }",
        "ENTRY e (x: f32[]) -> f32[3] { x = f32[] parameter(0) }",
        "ENTRY e { x = " + "(" * 5000 + "f32[]" + ")" * 5000 + " parameter(0) }",
        "ENTRY e { x = f32[] parameter(" + "9" * 5000 + ") }",
        "ENTRY e { x = f32[99999999999,99999999999] parameter(0) }",
        "ENTRY e { x = f32[2] constant({...}, 1) }",
        "\0\1\2",
    ],
)
def test_broken_text_ends_in_our_error(text: str) -> None:
    with pytest.raises(ShardcError):
        read_hlo(text)


def test_damaged_text_ends_in_our_error_or_is_read() -> None:
    rng = random.Random(7)
    pieces = [*'{}()[],="%#', "<=", "T(", "->", "0", "-1", "9" * 30, "f32[", "nan", "ROOT", "mesh['x'=2]", "/*", "²"]
    for _ in range(1500):
        text = FULL
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text) + 1)
            kind = rng.randrange(4)
            if kind == 0:
                text = text[:at] + rng.choice(pieces) + text[at:]
            elif kind == 1:
                text = text[:at] + text[at + rng.randint(1, 12) :]
            elif kind == 2:
                other = rng.randrange(len(text) + 1)
                text = text[:at] + text[other : other + rng.randint(1, 30)] + text[at:]
            else:
                text = text[:at]
        try:
            read_hlo(text)
        except ShardcError as e:
            assert str(e)


def test_constants_of_many_forms() -> None:
    module = entry(
        "a = f32[2,2] constant({ { 1, -2.5e-3 }, { inf, -nan } })",
        "b = pred[3] constant({true, false, 1})",
        "c = c64[2] constant({(1, -2), (nan, 0)})",
        "d = (f32[2], (s32[], pred[])) constant(({1, 2}, (-7, true)))",
        "f = f32[100] constant({" + ", ".join(["3"] * 100) + "})",
        "g = s32[2,0] constant({{}, {}})",
        "h = s32[4] constant(5)",
        "ROOT r = u8[] constant(255)",
    )
    values = {i.name: i.attrs["literal"] for i in module.entry}
    assert values["a"].array.tolist()[0] == [1.0, float(np.float32(-2.5e-3))]
    assert values["b"].array.tolist() == [True, False, True]
    assert values["c"].array[0] == 1 - 2j
    assert values["d"].elements[1].elements[0].array == -7
    assert values["f"].is_splat and values["f"].splat == 3
    assert values["g"].array.shape == (2, 0)
    assert values["h"].array.tolist() == [5, 0, 0, 0]  # XLA's reading


def test_instructions_without_metadata_say_where_their_text_stands() -> None:
    text = "HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] add(x,\n    f32[2] negate(x))\n"
    text += '  ROOT z = f32[2] tanh(y), metadata={op_name="z" source_file="m.py" source_line=3}\n}\n'
    module = read_hlo(text, "m.hlo")
    assert [(i.opcode, i.source) for i in module.entry] == [
        *[("parameter", "m.hlo:4"), ("negate", "m.hlo:6"), ("add", "m.hlo:5"), ("tanh", "m.py:3")]
    ]
    printed = print_module(module)
    assert "m.hlo" not in printed and same_module(module, read_hlo(printed))
    wrong = read_hlo(text.replace("f32[2] tanh", "f32[3] tanh").replace("m.py", ""), "m.hlo")
    with pytest.raises(VerificationError) as caught:
        verify(wrong)
    assert "m.hlo:7" in str(caught.value.where)


def test_inferred_shapes_keep_layouts() -> None:
    module = entry("x = (f32[2,3]{0,1}, s32[]) parameter(0)", "y = get-tuple-element(x), index=0", "ROOT z = tanh(y)")
    assert [str(i.shape) for i in module.entry][1:] == ["f32[2,3]{0,1}", "f32[2,3]{0,1}"]
