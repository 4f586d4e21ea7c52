"""Annotations by name, specs as text and as P, files, and meshes of another size."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from shardc.hlo.errors import AnnotationError, InputError, UnsupportedError
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.ir import Metadata, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.reader import read_hlo
from shardc.sharding.notations.annotate import annotate, parse_spec, read_annotations, resize_mesh
from shardc.sharding.notations.names import match_names
from shardc.sharding.notations.partition_spec import UNCONSTRAINED, P, as_spec, spec_to_sharding
from shardc.sharding.notations.source_names import parse_source_name, source_name
from shardc.sharding.propagate import propagate

MESH = Mesh({"data": 2, "model": 4})
MATRIX = array_shape("f32", 8, 16)


def program(mesh: Mesh | None = None) -> Module:
    b = Builder("main")
    w = b.parameter(MATRIX, "p0")
    v = b.parameter(MATRIX, "p1")
    s = b.add("add", w, v, name="sum", metadata=Metadata(op_name="jit(f)/add"))
    t = b.add("tanh", s, name="act", metadata=Metadata(op_name="jit(f)/twice"))
    u = b.add("sine", t, name="act2", metadata=Metadata(op_name="jit(f)/twice"))
    root = b.add("tuple", t, u)
    return make_module(
        "m", b.build(root), mesh=mesh, arg_names=("st['w'][0]", "st['w'][1]"), result_names=("loss", "out['x']")
    )


def constraints(m: Module) -> dict[str, str]:
    """Shardings of values inside of the program, by the value's name."""
    return {i.operands[0].name: str(i.sharding) for i in m.instructions() if is_constraint(i)}


def shardings(m: Module) -> list[str]:
    return [str(p.sharding) for p in m.parameters]


def test_exact_names_before_globs_and_brackets_are_literal() -> None:
    m = annotate(program(), {"st['w'][1]": P(None, "model"), "st*[0]": "data"}, MESH)
    assert shardings(m) == ["[{data}, {}]", "[{}, {model}]"]
    assert (m.mesh, m.num_partitions) == (MESH, 8)
    assert match_names("a[*]", ["a[0]", "a0", "a[1]"]) == ["a[0]", "a[1]"]
    assert match_names("a", ["ab", "a"]) == ["a"]


@pytest.mark.parametrize("name", ["st['[wv]'][0]", "st['w'][[01]]", "[rst]t['w'][0]", "st['[a-z]'][1]"])
def test_character_classes_are_no_patterns_and_the_error_says_so(name: str) -> None:
    with pytest.raises(AnnotationError, match="brackets match literally: give a pattern for each"):
        annotate(program(), {name: "data"}, MESH)


@pytest.mark.parametrize("name", ["st['v'][0]", "st['w'][2]", "st['[xy]'][0]"])
def test_other_names_with_brackets_get_the_near_names_alone(name: str) -> None:
    with pytest.raises(AnnotationError) as raised:
        annotate(program(), {name: "data"}, MESH)
    assert "brackets" not in str(raised.value) and "st['w'][0]" in str(raised.value.fix)


def layers() -> Module:
    """Two equal layers of one line, and what derivation made of it."""
    b = Builder("main")
    h, place = b.parameter(MATRIX, "x"), {"source_file": "/home/me/nets/model.py", "source_line": 7}
    for k, (name, column) in enumerate(
        [("jvp(f)/tanh", 8), ("jvp(f)/tanh", 8), ("transpose(jvp(f))/tanh", 8), ("g", 30)]
    ):
        metadata = Metadata(
            op_name=name, source_column=column, source_end_column=column + 5, source_end_line=7, **place
        )
        h = b.add("tanh", h, name=f"tanh.{k}", metadata=metadata)
    return make_module("m", b.build(h), mesh=MESH, arg_names=("x",))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("model.py:7:8-13 tanh", [0, 1]),
        ("nets/model.py:7:8 tanh", [0, 1]),
        ("/home/me/nets/model.py:7 tanh", [0, 1, 3]),
        ("model.py:7:30-35 tanh", [3]),
        ("tanh.2", [2]),
    ],
)
def test_values_by_the_source(name: str, meant: list[int]) -> None:
    """All that one expression makes, but for what derivation made of it."""
    assert constraints(annotate(layers(), {name: "data"})) == {f"tanh.{k}": "[{data}, {}]" for k in meant}


@pytest.mark.parametrize(
    "name", ["model.py:8:8-13 tanh", "other/model.py:7 tanh", "model.py:7:8-14 tanh", "model.py:7 dot"]
)
def test_a_place_of_the_source_that_makes_nothing_names_near_ones(name: str) -> None:
    with pytest.raises(AnnotationError, match=r"did you mean model\.py:7:(8-13|30-35) tanh"):
        annotate(layers(), {name: "data"})


def test_names_by_the_source_lead_back() -> None:
    operations = [i for i in layers().entry if i.opcode == "tanh"]
    assert list(map(source_name, operations)) == [*["model.py:7:8-13 tanh"] * 2, "", "model.py:7:30-35 tanh"]
    for i in operations:
        source = parse_source_name(source_name(i))
        assert source is None or i in source.among(operations)


def test_results_and_values_inside() -> None:
    m = annotate(program(), {"loss": P("data"), "act2": "?,model", "jit(f)/add": "data+model"}, MESH)
    root = m.entry.root
    assert isinstance(root.sharding, tuple)
    assert [None if s is None else str(s) for s in root.sharding] == ["[{data}, {}]", None]
    assert constraints(m) == {"act2": "[{?}, {model}]", "sum": "[{data, model}, {}]"}
    assert shardings(program()) == ["None", "None"]


def test_a_value_inside_is_constrained_as_jax_does_it_and_once() -> None:
    """All that reads it reads the constraint; another annotation of it takes the place of the first."""
    m = annotate(annotate(program(), {"act": "data", "sum": "model"}, MESH), {"jit(f)/add": "data", "act": ",model"})
    assert constraints(m) == {"act": "[{}, {model}]", "sum": "[{data}, {}]"}
    for i in m.entry:
        assert not {"act", "sum"} & {o.name for o in i.operands} or i.opcode == "custom-call"
    assert constraints(annotate(m, {"act.constraint": "data"})) == {"act": "[{data}, {}]", "sum": "[{data}, {}]"}


LOOP = """
HloModule loop
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
unused { u = f32[8,16] parameter(0)
  ROOT v = f32[8,16] negate(u) }
body { p = (s32[], f32[8,16]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  x = f32[8,16] get-tuple-element(p), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  inner = f32[8,16] tanh(x)
  ROOT r = (s32[], f32[8,16]) tuple(m, inner) }
condition { p = (s32[], f32[8,16]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  most = s32[] constant(3)
  ROOT less = pred[] compare(n, most), direction=LT }
ENTRY main { x = f32[8,16] parameter(0)
  dead = f32[8,16] call(x), to_apply=unused
  zero = s32[] constant(0)
  start = (s32[], f32[8,16]) tuple(zero, x)
  end = (s32[], f32[8,16]) while(start), condition=condition, body=body
  y = f32[8,16] get-tuple-element(end), index=1
  f = f32[] constant(0)
  ROOT t = f32[8] reduce(y, f), dimensions={1}, to_apply=sum }
"""


def test_values_inside_loops() -> None:
    m = annotate(read_hlo(LOOP), {"inner": "data,model"}, MESH)
    assert constraints(m) == {"inner": "[{data}, {model}]"}
    out = propagate(m).module
    assert str(out.parameters[0].axis_sharding) == "[{data}, {model}]"
    with pytest.raises(AnnotationError, match="no argument"):
        annotate(read_hlo(LOOP), {"s": "data"}, MESH)  # of a reducer


def test_calls_that_nobody_reads_leave_nothing_behind() -> None:
    m = annotate(read_hlo(LOOP), {"x": "data"}, MESH)
    assert {c.name for c in m.computations} == {"sum", "body", "condition", "main"}


@pytest.mark.parametrize(
    ("name", "spec", "parts"),
    [
        ("st[w][0]", "data", ["did you mean st['w'][0]? In a shell, put the whole option in double quotes"]),
        ("sum", '[{"data"}, {?}', ["has an unmatched '['", "write an entry per dimension"]),
        ("sum", '[{"data"}, {?}]', ["is how shardings are printed", "separated by commas: data,?"]),
        ("sum", '"data":(1)2,None', ["has quotation marks or parentheses", "write data:(1)2,None"]),
        ("sum", "('data', 'model'),None", ["has quotation marks or parentheses", "write data+model,None"]),
        ("sum", "(data,model),None", ["has quotation marks or parentheses", "write data+model,None"]),
        ("sum", "{devices=[2,1]<=[2]}", ["is a tile assignment", "write an entry per dimension"]),
        ("sum", "data+,None", ["an axis is missing in 'data+'"]),
        ("st['v'][0]", "data", ["no argument, result or value is named \"st['v'][0]\"", "did you mean st['w'][0]"]),
        ("jit(f)/twice", "data", ["2 values have it", "%act"]),
        ("st['w'][0]", "dat", ["no axis 'dat'", "argument st['w'][0], dimension 0", "data, model"]),
        ("st['w'][0]", P("data", "data"), ["axis data is used twice", "dimension 1"]),
        ("st['w'][0]", P(None, None, "data"), ["3 entries", "2 dimensions"]),
        ("st['w'][0]", "None,None,data", ["3 entries"]),
        ("st['w'][0]", "model:(1)3", ["does not fit axis 'model' of size 4"]),
        ("nothing*", "data", ["no argument, result or value"]),
    ],
)
def test_bad_annotations_say_what_and_where(name: str, spec: object, parts: list[str]) -> None:
    with pytest.raises(AnnotationError) as caught:
        annotate(program(), {name: spec}, MESH)
    for part in parts:
        assert part in str(caught.value)


def test_annotations_need_a_mesh() -> None:
    with pytest.raises(AnnotationError, match="need a mesh"):
        annotate(program(), {"loss": "data"})


def test_parse_spec() -> None:
    cases = {
        "": "[{}, {}]", "None,model": "[{}, {model}]", "data+model": "[{data, model}, {}]", "?": "[{?}, {}]",
        "data+?,": "[{data, ?}, {}]", "model:(2)2": "[{model:(2)2}, {}]",
    }  # fmt: skip
    assert {text: str(parse_spec(text, MESH, MATRIX)) for text in cases} == cases


def test_partition_spec() -> None:
    spec = P("data", UNCONSTRAINED, ("data", "model"), None)
    assert list(spec) == ["data", UNCONSTRAINED, ("data", "model"), None]
    assert spec == P("data", P.UNCONSTRAINED, ["data", "model"], None)
    assert repr(P("a", None)) == "P('a', None)"
    assert pickle.loads(pickle.dumps(UNCONSTRAINED)) is UNCONSTRAINED
    assert str(spec_to_sharding(P(UNCONSTRAINED, "model"), MESH, 3)) == "[{?}, {model}, {}]"
    with pytest.raises(AnnotationError, match="not 3"):
        P(3)
    with pytest.raises(AnnotationError, match="not a PartitionSpec"):
        as_spec(7)


def test_jax_specs_are_accepted() -> None:
    sharding = pytest.importorskip("jax.sharding")
    theirs = sharding.PartitionSpec("data", sharding.PartitionSpec.UNCONSTRAINED, ("data", "model"))
    assert as_spec(theirs) == P("data", UNCONSTRAINED, ("data", "model"))
    m = annotate(program(), {"loss": sharding.PartitionSpec(None, "model")}, MESH)
    assert isinstance(m.entry.root.sharding, tuple)
    assert str(m.entry.root.sharding[0]) == "[{}, {model}]"


def test_resizing_keeps_axes_by_name() -> None:
    m = annotate(program(), {"st['w'][0]": "data,model"}, Mesh({"data": 1, "model": 1}))
    big = resize_mesh(m, Mesh({"data": 16, "model": 8}))
    assert (big.mesh, big.num_partitions) == (Mesh({"data": 16, "model": 8}), 128)
    assert big.parameters[0].axis_sharding.num_shards() == (16, 8)
    part = resize_mesh(m, Mesh({"model": 4, "extra": 2}))
    assert part.mesh == Mesh({"data": 1, "model": 4, "extra": 2})
    assert resize_mesh(big, Mesh({"data": 16})).mesh == big.mesh


def test_what_cannot_be_resized() -> None:
    m = annotate(program(), {"loss": Sharding.of(MESH, None, None).with_axes([(AxisRef("model", 1, 2),), ()])}, MESH)
    with pytest.raises(AnnotationError, match="does not fit"):
        resize_mesh(m, Mesh({"data": 2, "model": 3}))
    b = Builder("main")
    x = b.parameter(MATRIX, "x")
    c = b.add("custom-call", x, shape=MATRIX, custom_call_target="SPMDFullToShardShape", name="enter")
    manual = make_module("m", b.build(c), mesh=MESH)
    with pytest.raises(UnsupportedError, match="manual computations") as caught:
        resize_mesh(manual, Mesh({"data": 4, "model": 4}))
    assert "%enter" in str(caught.value)


def test_annotations_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[mesh]\ndata = 2\nmodel = 4\n[annotate]\n"st[\'w\'][0]" = "None,model"\nloss = ["data", "?"]\n')
    read = read_annotations(path)
    m = annotate(program(), read.specs, read.mesh)
    assert shardings(m)[0] == "[{}, {model}]"
    assert isinstance(m.entry.root.sharding, tuple)
    assert str(m.entry.root.sharding[0]) == "[{data}, {?}]"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[mesh", InputError, "not a TOML file"),
        ("[meshes]\nx = 1", AnnotationError, "unknown table 'meshes'"),
        ("[mesh]\nx = 1.5", AnnotationError, "whole numbers"),
        ("[annotate]\nx = 3", AnnotationError, "spec of 'x'"),
    ],
)
def test_bad_annotations_files(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(error, match=message) as caught:
        read_annotations(path)
    assert "a.toml" in str(caught.value)
    with pytest.raises(InputError, match="cannot read"):
        read_annotations(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("[{data},{}]", "separated by commas: data,None"),
        ("[{data, model}, {?}]", r"separated by commas: data\+model,\?"),
        ("data;None", "separate entries by commas: data,None"),
        ("data None", "separate entries by commas: data,None"),
        ("P(data)", "as text write data; in Python"),
    ],
)
def test_other_ways_to_write_a_spec_come_with_the_right_one(text: str, fix: str) -> None:
    with pytest.raises(AnnotationError, match=fix):
        parse_spec(text, Mesh({"data": 2, "model": 2}), array_shape("f32", 4, 4))
