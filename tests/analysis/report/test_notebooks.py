"""What objects show of themselves in notebooks: well-formed, escaped, right, and without JAX."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from tests.analysis.simulate.fake_simulation import fake_simulation

DEMO = Path(shardc.__file__).parent / "demo" / "step.hlo"
EVIL = "<script>alert('1')</script>&\u2028\""


def parsed(html: str) -> ET.Element:
    """A fragment as a tree: well-formed XML, without scripts, styles of its own, and addresses."""
    tree = ET.fromstring(html)
    tags = {e.tag for e in tree.iter()}
    assert tags <= {"div", "b", "span", "table", "thead", "tbody", "tr", "td", "th"}
    assert not any(key in ("href", "src") or key.startswith("on") for e in tree.iter() for key in e.attrib)
    return tree


def text(html: str) -> str:
    return " ".join("".join(parsed(html).itertext()).split())


def test_program_shows_parameters_mesh_and_annotations() -> None:
    program = shardc.trace(lambda w, x: x @ w, np.zeros((8, 4), np.float32), np.zeros((2, 8), np.float32))
    assert "no mesh yet" in text(program._repr_html_())
    shown = text(program.annotate({"w": P("model", None)}, mesh=Mesh({"model": 4}))._repr_html_())
    assert "mesh model=4" in shown and "f32[8,4]" in shown and "model" in shown


def test_later_stages_show_totals_and_collectives() -> None:
    propagated = shardc.load(DEMO).propagate()
    assert "result" in text(propagated._repr_html_())
    partitioned = propagated.partition()
    facts, shown = partitioned.report(), text(partitioned._repr_html_())
    assert f"{facts['devices']} devices" in shown and "all-reduce" in shown
    rows = len(parsed(partitioned._repr_html_()).findall(".//tbody/tr"))
    assert rows == min(10, len(facts["collectives"]))
    told = text(partitioned.explanation()._repr_html_())
    assert "what would remove it" in told


def test_array_shows_who_holds_what() -> None:
    mesh = Mesh({"data": 2, "model": 2})
    program = shardc.trace(lambda x: x + 1, np.zeros((4, 6), np.float32))
    compiled = program.annotate({"x": P("data", "model")}, mesh=mesh).propagate().partition().compile()
    array = compiled(np.ones((4, 6), np.float32))
    tree = parsed(array._repr_html_())
    cells = ["".join(td.itertext()) for td in tree.iter("td")]
    held = {tuple(s.start or 0 for s in shard.index): shard.device for shard in array.addressable_shards}
    assert cells == [str(held[start]) for start in sorted(held)]
    assert "float32[4,6]" in text(array._repr_html_()) and "every shard is in this process" in text(array._repr_html_())
    array._donate("step")
    assert "donated" in text(array._repr_html_())


def test_simulation_shows_its_breakdown() -> None:
    simulation = fake_simulation()
    tree = parsed(simulation._repr_html_())
    widths = [e.attrib["style"] for e in tree.iter("div") if e.attrib.get("style", "").startswith("width:")]
    assert sum(float(w.split(":")[1].split("%")[0]) for w in widths) == pytest.approx(100, abs=0.1)
    assert "MFU 50.0%" in text(simulation._repr_html_()) and "infiniband" in text(simulation._repr_html_())


def test_names_are_escaped() -> None:
    import dataclasses

    simulation = dataclasses.replace(fake_simulation(), program=EVIL, machine=EVIL)
    assert text(simulation._repr_html_()).count("<script>") == 2
    partitioned = shardc.load(DEMO).propagate().partition()
    partitioned._report["collectives"][0]["reason"] = EVIL
    assert "<script>alert" in text(partitioned._repr_html_())


def test_needs_neither_jax_nor_llvm() -> None:
    code = (
        "import sys, shardc; sys.modules['jax'] = sys.modules['jaxlib'] = sys.modules['matplotlib'] = None\n"
        f"p = shardc.load({str(DEMO)!r}).propagate().partition()\n"
        "print(len(p._repr_html_()) > 500, len(p.explanation()._repr_html_()) > 500)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
