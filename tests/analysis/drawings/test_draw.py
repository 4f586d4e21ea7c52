"""Pictures of tensors over meshes: what they show is where the devices hold data."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.cli.app import main
from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.launcher.drawings.draw_layout import picture_svg, picture_table, shard_colour, sharding_svg
from shardc.launcher.drawings.layout_picture import Picture, PictureLimits, make_picture
from shardc.partitioner.equivalence import shard_places

MESH = Mesh({"data": 2, "model": 4})


def picture(sharding: Sharding, *dims: int, **limits: int) -> Picture:
    return make_picture("w", array_shape("f32", *dims), sharding, PictureLimits(**limits))


def svg_texts(svg: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_matrix_by_columns() -> None:
    p = picture(Sharding.of(MESH, None, "model"), 128, 512)
    assert p.title == "w: f32[128,512] over data=2,model=4"
    assert p.facts == (
        "dimension 0: 128, whole",
        "dimension 1: 512, 4 parts of 128 over model",
        "every part is on 2 devices",
    )
    (panel,) = p.panels
    assert panel is not None
    titles, rows = picture_table(p, panel)
    assert titles == [
        "dim 0 x dim 1", "0:128 (model=0)", "128:256 (model=1)", "256:384 (model=2)", "384:512 (model=3)"
    ]  # fmt: skip
    assert [[text for text, _ in row] for row in rows] == [["0:128", "0, 4", "1, 5", "2, 6", "3, 7"]]
    assert {"0, 4", "384:512", "model=3"} <= set(svg_texts(picture_svg(p)))


@st.composite
def shardings(draw: st.DrawFn) -> tuple[Sharding, tuple[int, ...]]:
    mesh = draw(st.sampled_from([MESH, Mesh({"a": 4, "b": 3}), Mesh({"a": 2, "b": 2}, device_ids=(0, 3, 1, 2))]))
    axes: list[AxisRef] = []
    for name, size in mesh.axes:
        axes += [AxisRef(name, 1, 2), AxisRef(name, 2, 2)] if size == 4 else [AxisRef(name)]
    order = draw(st.permutations(axes))
    rank = draw(st.integers(0, 4))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), min_size=rank, max_size=rank)))
    parts = [order[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
    dims = tuple(draw(st.lists(st.integers(1, 9), min_size=rank, max_size=rank)))
    return Sharding(mesh, tuple(DimSharding(tuple(p)) for p in parts)), dims


@settings(max_examples=150, deadline=None, derandomize=True)
@given(shardings())
def test_cells_are_where_the_data_lies(case: tuple[Sharding, tuple[int, ...]]) -> None:
    sharding, dims = case
    p = picture(sharding, *dims, parts=100, panels=100)
    places = dict(shard_places(sharding, dims))
    seen: set[int] = set()
    for panel in p.panels:
        assert panel is not None
        rows = p.rows.parts if p.rows else (None,)
        columns = p.columns.parts if p.columns else (None,)
        for row, cells in zip(rows, panel.cells, strict=True):
            for column, cell in zip(columns, cells, strict=True):
                assert cell is not None
                for device in cell.devices:
                    seen.add(device)
                    for cut, part in ((p.rows, row), (p.columns, column)):
                        if cut is not None and part is not None:
                            assert places[device][cut.dim] == slice(part.start, part.stop)
                assert len({places[d] == places[cell.devices[0]] for d in cell.devices}) == 1
    assert seen == set(range(sharding.mesh.size))
    ET.fromstring(picture_svg(p))


def test_uneven_parts_show_their_padding() -> None:
    p = picture(Sharding.of(MESH, "model"), 7)
    assert p.columns is not None
    assert [part.span for part in p.columns.parts if part] == ["0:2", "2:4", "4:6", "6:7 +1"]
    assert "4 parts of 2 over model (3 full, one of 1)" in p.facts[0]
    assert "url(#padding)" in picture_svg(p)
    few = picture(Sharding.of(MESH, ("data", "model")), 5)
    assert "(5 full, 3 empty)" in few.facts[0]


def test_forty_parts_have_forty_colours() -> None:
    assert len({shard_colour(k) for k in range(40)}) == 40


def test_more_than_two_split_dimensions_become_panels() -> None:
    mesh = Mesh({"a": 2, "b": 2, "c": 4})
    p = picture(Sharding.of(mesh, "a", "b", "c", None), 8, 64, 16, 128)
    assert (p.rows is not None, p.columns is not None) == (True, True)
    assert [panel.label for panel in p.panels if panel] == ["dimension 0: 0:4 (a=0)", "dimension 0: 4:8 (a=1)"]
    assert "dimension 3: 128, whole, not drawn" in p.facts


def test_thousands_of_devices_are_elided() -> None:
    p = picture(Sharding.of(Mesh({"a": 64, "b": 64}), "a", "b"), 4096, 8192)
    assert p.columns is not None
    assert [part.index if part else None for part in p.columns.parts] == [0, 1, 2, 3, 4, 5, None, 63]
    svg = picture_svg(p)
    assert "4095" in svg_texts(svg)
    assert len(svg) < 30_000
    whole = picture(Sharding.of(Mesh({"a": 4096}), None), 8)
    (panel,) = whole.panels
    assert panel is not None
    assert panel.cells[0][0] is not None
    assert panel.cells[0][0].text == "0, 1, 2, 3, 4, 5 and 4090 more"


@pytest.mark.parametrize(
    ("sharding", "dims", "fact"),
    [
        (
            Sharding(MESH, (DimSharding(),), unreduced=(AxisRef("data"), AxisRef("model"))),
            (4,),
            "their sum over data, m",
        ),
        (Sharding(Mesh((), (3,)), (DimSharding(),)), (4,), "on device 3 only"),
        (Sharding.of(MESH), (), "every part is on 8 devices (replicated)"),
        (Sharding(MESH, (DimSharding(),), manual=("data",)), (4,), "manual axes: data"),
    ],
)
def test_facts(sharding: Sharding, dims: tuple[int, ...], fact: str) -> None:
    assert any(fact in f for f in picture(sharding, *dims).facts)
    ET.fromstring(sharding_svg("a<b", array_shape("f32", *dims), sharding))


PROGRAM = """
sdy.mesh @mesh = <["data"=2, "model"=4]>
func.func @main(%x: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>} loc("x"))
    -> tensor<8x6xf32> {
  %0 = stablehlo.tanh %x : tensor<8x6xf32> loc("y")
  return %0 : tensor<8x6xf32>
}
"""


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "p.mlir", tmp_path / "y.svg"
    file.write_text(PROGRAM)
    assert main(["visualize", str(file), "--value", "y"]) == 0
    shown = capsys.readouterr().out
    assert "y: f32[8,6] over data=2,model=4" in shown
    assert "4:8 (data=1)" in shown
    assert "empty (model=3)" in shown
    assert main(["visualize", str(file), "--value", "x", "--svg", str(out)]) == 0
    assert "model=3" in svg_texts(out.read_text())
    assert main(["visualize", str(file), "--value", "x", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data[0]["panels"][0]["cells"][1][2]["devices"] == [6]
    assert main(["visualize", str(file), "--value", "z"]) == 2
    assert "no value is named 'z'" in capsys.readouterr().err
    assert main(["visualize", str(file), "--value", "x", "--value", "y", "--svg", str(out)]) == 2
    capsys.readouterr()
    assert main(["visualize", str(file), "--value", "*"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("x: f32[8,6]") == 1 and shown.count(": f32[8,6] over") == 3


def test_values_have_near_names() -> None:
    from shardc.hlo.ir.build import Builder, make_module
    from shardc.launcher.drawings.layout_picture import layouts

    b = Builder("main")
    x = b.parameter(array_shape("f32", 8), "weights", sharding=Sharding.of(MESH, "data"))
    module = make_module("m", b.build(b.add("negate", x, sharding=Sharding.of(MESH, "data"))))
    assert layouts(module, "weights")[0][1] == array_shape("f32", 8)
    with pytest.raises(AnnotationError, match="no value") as caught:
        layouts(module, "weigths")
    assert "weights" in str(caught.value)
