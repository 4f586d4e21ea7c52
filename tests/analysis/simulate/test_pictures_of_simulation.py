"""Pictures of simulated steps: every label readable, none over another; files that viewers open."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardc.analysis.simulate import plots
from shardc.analysis.simulate.fold import fold_time
from shardc.analysis.simulate.pictures import PICTURES, draw_picture, draw_pictures
from shardc.analysis.simulate.simulated_step import Skipped
from shardc.analysis.simulate.simulation import Simulation
from shardc.hlo.errors import InputError
from tests.analysis.simulate.fake_simulation import fake_simulation

pytest.importorskip("matplotlib", reason="pictures need matplotlib (extra plot)")


def alone() -> Simulation:
    """One device: nothing moves."""
    s = fake_simulation()
    moves = {n for n, w in enumerate(s.work) if w.kind == "collective"}
    return dataclasses.replace(
        s, devices=1, mesh={}, mapping={}, link_bytes={}, exposed_seconds=0.0, overlapped_seconds=0.0,
        events=tuple(e for e in s.events if e.work not in moves), skipped=(), loops=(),
        work=tuple(dataclasses.replace(w, wire_bytes=0) for w in s.work),
    )  # fmt: skip


def full() -> Simulation:
    """Nearly out of memory, with names that are long and strange."""
    return dataclasses.replace(fake_simulation(evil="$x^$ <b>層"), capacity_bytes=5 << 30, program="$a_b$" * 40)


def empty() -> Simulation:
    """A program that does nothing."""
    s = fake_simulation()
    nothing: dict[str, Any] = {"work": (), "events": (), "skipped": (), "loops": (), "groups": (), "memory_curve": ()}
    zero = dict.fromkeys(("step_seconds", "compute_seconds", "exposed_seconds", "overlapped_seconds"), 0.0)
    return dataclasses.replace(s, **nothing, **zero, link_bytes={}, peak_bytes=0)


CASES = {"usual": fake_simulation, "alone": alone, "full": full, "empty": empty}


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("case", CASES)
def test_labels_lie_on_the_page_and_not_over_each_other(name: str, case: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    figure = PICTURES[name](CASES[case]())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    boxes = []
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent(canvas.get_renderer()).padded(-1.5)
            if box.width > 0 and box.height > 0:
                boxes.append((text.get_text(), box))
    for text, box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        assert not a.overlaps(b), (one, other)


def test_files(tmp_path: Path) -> None:
    written = draw_pictures(full(), tmp_path / "new")
    assert [p.name for p in written] == [f"{name}.png" for name in PICTURES]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in written)
    svg = draw_picture(full(), tmp_path / "t.svg", "timeline")
    texts = "".join(t for e in ET.fromstring(svg.read_text()).iter() if (t := e.text))
    assert "compute waits" in texts and "infiniband" in texts
    again = draw_picture(full(), tmp_path / "u.svg", "timeline")
    assert again.read_bytes() == svg.read_bytes()


def test_names_are_broken_into_lines_where_they_do_not_fit() -> None:
    assert plots._fitted("dot_general", 11, 3) == "dot_general"
    assert plots._fitted("dot_general", 9, 3) == "dot_\ngeneral"
    assert plots._fitted("all-reduce divide.1", 10, 3) == "all-reduce\ndivide.1"
    assert plots._fitted("dot_general", 9, 1) == "dot_gene…"
    assert plots._fitted("dot_general", 4, 3) == ""


def test_bad_names_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pdf"):
        draw_picture(fake_simulation(), tmp_path / "a.pdf")
    with pytest.raises(InputError, match="overview, timeline"):
        draw_picture(fake_simulation(), tmp_path / "a.png", "tower")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="folder"):
        draw_pictures(fake_simulation(), tmp_path / "file" / "x")


def test_without_matplotlib_the_way_out_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from shardc.analysis.simulate.pictures import draw_pictures\n"
        "from shardc.hlo.errors import UnsupportedError\n"
        "try:\n    draw_pictures(None, sys.argv[1])\nexcept UnsupportedError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "x")], capture_output=True, text=True, check=True)
    assert "shardc[plot]" in done.stdout and not (tmp_path / "x").exists()


def test_folded_time_goes_both_ways_and_keeps_listed_time_proportional() -> None:
    s = fake_simulation()
    fold = fold_time(s)
    points = np.linspace(0, s.step_seconds, 101)
    assert np.allclose(fold.time(fold.place(points)), points)
    assert (np.diff(fold.place(points)) > 0).all()
    skip = s.skipped[0]
    low, high = fold.place([skip.begin, skip.begin + skip.seconds])
    assert high - low == pytest.approx(0.1)
    listed = fold.place([0, 100e-6, 200e-6])
    assert listed[1] - listed[0] == pytest.approx(listed[2] - listed[1])


def test_folds_within_folds_are_one() -> None:
    s = fake_simulation()
    skip = s.skipped[0]
    inner = Skipped("inner", 1, 2, skip.begin + 1e-4, 1e-4, ((skip.loop, 5),))
    tiny = Skipped("tiny", 1, 2, 1e-5, 1e-5)
    fold = fold_time(dataclasses.replace(s, skipped=(inner, skip, tiny)))
    assert [b.loop for b in fold.skipped] == ["tiny", skip.loop] and fold.folded == (skip,)
    low, high, after = fold.place([1e-5, 2e-5, 3e-5])
    assert high - low == pytest.approx(after - high)
