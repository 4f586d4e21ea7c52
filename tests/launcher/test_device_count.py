"""How many devices a program is for is the same for every stage, however its text says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cli.app import main
from shardc.frontends.load import load_program
from shardc.sharding.notations.device_count import device_count
from shardc.sharding.notations.tile_assignments import convert_to_axes

BODY = """
ENTRY main {
  x = f32[8,4] parameter(0)%s
  y = f32[8,4] multiply(x, x)%s
  ROOT s = (f32[8,4], f32[8,4]) tuple(y, x)%s
}
"""
SHARDINGS = {
    1: ["", "replicated", "maximal device=0"],
    2: ["devices=[2,1]0,1", "devices=[1,1,2]<=[2] last_tile_dim_replicate"],
    4: ["devices=[4,1]<=[4]", "devices=[2,2]0,2,1,3", "devices=[2,1,2]<=[4] last_tile_dim_replicate"],
}


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, int]:
    """Shardings on some of the values, the number of devices in the header or not."""
    devices = draw(st.sampled_from(sorted(SHARDINGS)))
    words = [draw(st.sampled_from(["", *SHARDINGS[devices][:4]])) for _ in range(2)]
    named = draw(st.booleans())
    root = draw(st.sampled_from(["", *SHARDINGS[devices][:3]]))
    placed = [f", sharding={{{w}}}" if w else "" for w in words]
    placed.append(f", sharding={{{{{root}}},{{{root}}}}}" if root else "")
    told = named or any("devices=" in w for w in (*words, root))
    header = f"HloModule m{f', num_partitions={devices}' * named}\n"
    return header + BODY % tuple(placed), devices if told else 1


@given(texts())
@settings(max_examples=25, deadline=None)
def test_all_stages_count_the_same_devices(found: tuple[str, int]) -> None:
    text, devices = found
    program = load_program(text.encode(), "drawn.hlo")
    assert device_count(program.module) == devices
    assert device_count(convert_to_axes(program.module)) == devices
    assert program.for_one_device == (devices == 1)
    assert program.partition().num_devices == devices


@pytest.mark.parametrize("sharding", SHARDINGS[4])
@pytest.mark.parametrize("header", ["", ", num_partitions=4"])
def test_commands_and_the_api_agree(
    header: str, sharding: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(f"HloModule m{header}\n" + BODY % (f", sharding={{{sharding}}}", "", ""))
    x = np.ones((8, 4), np.float32)
    compiled = shardc.load(file).compile()
    assert compiled.executable.num_devices == 4
    assert np.asarray(compiled(x)[0]).tolist() == x.tolist()
    for words in (["run"], ["bench", "--steps", "1"], ["simulate", "--machine", "h100-dgx:4"], ["explain"]):
        assert main([words[0], str(file), *words[1:]]) == 0
        assert "4 devices" in capfd.readouterr().out, words
    assert main(["compile", str(file), "-o", str(tmp_path / "out")]) == 0
    assert '"devices": 4' in (tmp_path / "out" / "m.json").read_text()
    assert main(["partition", str(file)]) == 0
    assert "num_partitions=4" in capfd.readouterr().out
    assert main(["sweep", str(file), "--machine", "h100-dgx", "--json"]) == 0
    swept = json.loads(capfd.readouterr().out)
    assert {c["devices"] for c in swept["candidates"]} == {4}
    assert main(["visualize", str(file), "--value", "x", "--json"]) == 0
    (drawn,) = json.loads(capfd.readouterr().out)
    cells = [c for p in drawn["panels"] if p for row in p["cells"] for c in row]
    assert {d for c in cells for d in c["devices"]} == {0, 1, 2, 3}
    assert main(["report", str(file), "-o", str(tmp_path / "r.html"), "--remedies", "0"]) == 0
    assert "on 4 devices" in (tmp_path / "r.html").read_text()
