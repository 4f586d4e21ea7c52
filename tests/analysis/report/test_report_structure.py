"""What the report's page is made of: figures add up to the program's own, scopes and loops stand where they belong."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardc
from shardc import P
from shardc.analysis.report.gather import report_data
from shardc.analysis.report.leaves import Around, leaves_of_module, leaves_of_simulation, loops_of_module
from shardc.analysis.report.page import SCRIPTS, page
from shardc.analysis.report.structure import StructureNode, scopes_of, structure
from shardc.analysis.report.tensors import layout_data
from shardc.cli.app import main
from shardc.hlo.errors import InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.stages.stages import Partitioned
from tests.analysis.simulate.fake_simulation import TRIPS, fake_simulation

LOOP = """HloModule looped, num_partitions=4
body {
  p = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[64,64] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one), metadata={op_name="f/while/body/add"}
  y = f32[64,64] dot(x,x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/while/body/l/dot"}
  ROOT t = (s32[], f32[64,64]) tuple(next, y)
}
cond {
  p = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT, metadata={op_name="f/while/cond/lt"}
}
ENTRY main {
  w = f32[64,64] parameter(0), sharding={devices=[4,1]<=[4]}
  zero = s32[] constant(0)
  init = (s32[], f32[64,64]) tuple(zero, w)
  loop = (s32[], f32[64,64]) while(init), condition=cond, body=body, metadata={op_name="f/while"}
  r = f32[64,64] get-tuple-element(loop), index=1
  ROOT out = f32[64,64] negate(r)
}
"""


@pytest.fixture(scope="module")
def looped(tmp_path_factory: pytest.TempPathFactory) -> Partitioned:
    path = tmp_path_factory.mktemp("report") / "looped.hlo"
    path.write_text(LOOP)
    return shardc.load(path).propagate().partition()


def walk(node: StructureNode, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StructureNode]]:
    yield path, node
    for child in node.children:
        yield from walk(child, (*path, child.label))


def test_leaves_add_up_to_the_report(looped: Partitioned) -> None:
    leaves, facts = leaves_of_module(looped.module), looped.report()
    assert sum(x.flops for x in leaves) == facts["flops"]
    assert sum(x.sent for x in leaves) == pytest.approx(facts["wire_bytes"])
    moved = [(x.name, x.count) for x in leaves if x.kind == "collective"]
    assert sorted(moved) == sorted((c["name"], c["count"]) for c in facts["collectives"]) and moved


def test_work_of_a_loop_stands_in_the_loop(looped: Partitioned) -> None:
    tree = structure(leaves_of_module(looped.module), loops_of_module(looped.module))
    places = {node.leaf.opcode: path[:-1] for path, node in walk(tree) if node.leaf is not None}
    (loop,) = (node for _, node in walk(tree) if node.kind == "loop")
    assert loop.loop is not None and loop.loop.trips == 5
    assert places["dot"] == ("f", loop.label, "l")
    assert places["compare"] == ("f", loop.label)
    assert places["negate"] == ("looped.hlo",)


def test_work_of_a_simulation_stands_in_its_scopes() -> None:
    simulation = fake_simulation()
    loops = {x.name: Around(x.op_name, x.source, x.trips) for x in simulation.loops}
    leaves = leaves_of_simulation(simulation)
    places = {node.leaf.name: path[:-1] for path, node in walk(structure(leaves, loops)) if node.leaf is not None}
    assert places["dot.3"] == ("jit(step)", "while.7", "layer", "mlp")
    assert places["loss.5"] == ("jit(step)",)
    assert sum(x.seconds or 0 for x in leaves) == pytest.approx(simulation.step_seconds)
    assert sum(x.flops for x in leaves) == TRIPS * 10**11


def test_scopes_keep_slashes_in_brackets() -> None:
    assert scopes_of("f/transpose(jvp(a/b))/state['x/y']/dot") == [
        "f",
        "transpose(jvp(a/b))",
        "state['x/y']",
        "dot",
    ]
    assert scopes_of("") == scopes_of("//") == []


@given(st.text("ab/()['", max_size=20))
def test_scopes_lose_nothing_but_slashes(name: str) -> None:
    assert "".join(scopes_of(name)).replace("/", "") == name.replace("/", "")


def test_layouts_are_those_of_the_pictures() -> None:
    mesh = Mesh({"data": 2, "model": 4})
    data = layout_data(array_shape("f32", 6, 10), Sharding.of(mesh, "data", "model"))
    assert data["rows"][1] == [["0:3", "data=0", 0], ["3:6", "data=1", 0]]
    assert data["columns"][1][3] == ["9:10 +2", "model=3", round(2 / 3, 4)]
    assert data["panels"][0]["cells"][1] == [[4, "4"], [5, "5"], [6, "6"], [7, "7"]]


def embedded(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


EVIL = "</script><script>alert(1)</script><!-- \" ' & \u2028 \u202e 層"


def test_names_of_the_program_end_no_element(looped: Partitioned) -> None:
    data = report_data(looped, simulation=fake_simulation(evil=EVIL))
    data["program"] = EVIL
    text = page(data)
    assert text.count("</script>") == 2 and text.count("<script") == 2 and "<!--" not in text.split("<body>")[1]
    assert embedded(text) == json.loads(json.dumps(data))
    assert any(EVIL in s for s in embedded(text)["strings"])
    assert "</script" not in text.split("<title>")[1].split("</title>")[0]


#: The namespace of SVG is a name, not an address that is asked.
SVG_NAMES = "http://www.w3.org/2000/svg"


def test_scripts_never_parse_text_as_html() -> None:
    from importlib import resources

    for name in SCRIPTS:
        script = (resources.files("shardc.analysis.report") / name).read_text().replace(SVG_NAMES, "")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?:", script), name
        assert "</script" not in script


def test_equal_programs_make_equal_pages(looped: Partitioned, tmp_path: Path) -> None:
    (tmp_path / "looped.hlo").write_text(LOOP)
    looped.write_report(tmp_path / "a.html", machine="h100-dgx")
    again = shardc.load(looped.program.module.source_file).propagate().partition()
    again.write_report(tmp_path / "b.html", machine="h100-dgx")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_without_a_machine_there_are_no_seconds(looped: Partitioned, tmp_path: Path) -> None:
    looped.write_report(tmp_path / "a.html")
    data = embedded((tmp_path / "a.html").read_text())
    assert data["timeline"] is data["traffic"] is None and data["memory"]["unit"] == "step"
    assert all(row["seconds"] is None for row in data["collectives"])
    assert data["totals"]["wire_bytes"] == looped.report()["wire_bytes"]


def test_collectives_find_their_explanation(looped: Partitioned, tmp_path: Path) -> None:
    for machine in (None, "h100-dgx"):
        looped.write_report(tmp_path / "a.html", machine=machine)
        data = embedded((tmp_path / "a.html").read_text())
        assert data["collectives"] and all(row["why"] >= 0 for row in data["collectives"])


def test_figures_of_a_simulation_are_the_simulations(looped: Partitioned) -> None:
    simulation = fake_simulation()
    data = report_data(looped, simulation=simulation)
    assert sum(n for _, _, n in data["traffic"]["cells"]) == pytest.approx(simulation.traffic_matrix(64).sum())
    assert len(data["timeline"]["events"]) == len(simulation.events)
    assert data["memory"]["needed"] == simulation.peak_bytes
    assert data["timeline"]["skipped"][0][:3] == ["while.7", 3, 39]
    tight = dataclasses.replace(simulation, capacity_bytes=1 << 30)
    assert "needs 5.0 GiB" in report_data(looped, simulation=tight)["notes"][0]


def test_arguments_at_the_peak_have_their_names() -> None:
    donated = shardc.load(Path(shardc.__file__).parent / "demo" / "step.hlo").propagate().partition()
    shown = report_data(donated, simulation=donated.simulate("h100-dgx"))["memory"]["largest"]
    arguments = [row["op_name"] for row in shown if row["kind"] == "argument"]
    assert arguments and set(arguments) <= set(donated.program.module.argument_names)


def test_states_of_a_loop_are_called_as_what_writes_them(looped: Partitioned) -> None:
    states = [block for block in looped.memory_timeline().blocks if block.name == "loop"]
    assert {(b.op_name, b.shape) for b in states} == {
        ("f/while/body/add", "s32[]"),
        ("f/while/body/l/dot", "f32[16,64]"),
    }


def test_devices_of_a_permuted_mesh_are_told(tmp_path: Path) -> None:
    order = (3, 1, 2, 0)
    program = shardc.trace(np.tanh, np.zeros(4, np.float32)).annotate({"x": P("a")}, mesh=Mesh({"a": 4}, order))
    assert report_data(program.propagate().partition())["device_order"] == list(order)
    plain = shardc.trace(np.tanh, np.zeros(4, np.float32)).annotate({"x": P("a")}, mesh=Mesh({"a": 4}))
    assert report_data(plain.propagate().partition())["device_order"] is None


def test_programs_at_the_edge_have_pages(tmp_path: Path) -> None:
    """Without a mesh, without elements, and larger than memory."""
    one = shardc.trace(np.tanh, np.zeros(4, np.float32)).propagate().partition()
    one.write_report(tmp_path / "one.html", machine="h100-dgx")
    assert embedded((tmp_path / "one.html").read_text())["traffic"]["cells"] == []
    none = shardc.trace(lambda x: x, np.zeros((0, 3), np.float32)).annotate({"x": P("a")}, mesh=Mesh({"a": 4}))
    none.propagate().partition().write_report(tmp_path / "none.html", machine="tpu-v5e")
    assert embedded((tmp_path / "none.html").read_text())["totals"]["seconds"]["step"] == 0
    large = shardc.trace(lambda x: x @ x.T, shardc.ShapeDtype((400_000, 400_000), "float32"))
    large = large.annotate({"x": P("a")}, mesh=Mesh({"a": 4}))
    large.propagate().partition().write_report(tmp_path / "large.html", machine="tpu-v5e")
    assert "of memory on each device" in embedded((tmp_path / "large.html").read_text())["notes"][0]


def test_bad_input(looped: Partitioned, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="pdf"):
        looped.write_report(tmp_path / "a.pdf")
    with pytest.raises(InputError, match="mapping"):
        looped.write_report(tmp_path / "a.html", mapping="axis_0=nvlink")
    path = looped.program.module.source_file
    assert main(["report", path, "-o", str(tmp_path / "none" / "a.html")]) == 2
    assert main(["report", path, "-o", str(tmp_path / "a.html"), "--machine", "h100-dxg"]) == 2
    assert main(["report", path, "-o", str(tmp_path / "a.html"), "--remedies", "-1"]) == 2
    assert "h100-dgx" in capsys.readouterr().err and not (tmp_path / "a.html").exists()
    assert main(["report", path, "-o", str(tmp_path / "a.html"), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == (tmp_path / "a.html").stat().st_size
