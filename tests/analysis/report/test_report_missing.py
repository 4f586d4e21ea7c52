"""Sections without anything to show say why, in one sentence, instead of an empty table or chart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import shardc
import shardc.numpy
from shardc import Mesh, P
from shardc.analysis.report.gather import report_data
from shardc.analysis.report.page import page
from shardc.stages.stages import Partitioned
from tests.analysis.report.browser import Browser, need_chromium

MACHINE = "No machine was named, so no times are known."
ONE = "The program runs on one device: no data moves between devices."
NONE = "The program has no collectives: no data moves between devices."
MEMORY = "The memory over the program is not known"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = need_chromium()
    with Browser(path, tmp_path_factory.mktemp("profile")) as started:
        yield started


def tanh_on(devices: int) -> Partitioned:
    x = np.zeros((64, 8), np.float32)
    if devices == 1:
        return shardc.trace(shardc.numpy.tanh, x).partition()
    mesh = Mesh({"x": devices})
    return shardc.trace(shardc.numpy.tanh, x, mesh=mesh, in_shardings=(P("x"),)).partition()


def said(browser: Browser, folder: Path, text: str) -> tuple[dict[str, str], str]:
    """By section what it says of being empty; and the header."""
    (folder / "page.html").write_text(text, encoding="utf-8")
    tab = browser.open(folder / "page.html")
    sections = ("operations", "collectives", "timeline", "memory", "traffic")
    for name in sections:
        tab.eval(f"document.getElementById('{name}').scrollIntoView()")
        tab.wait(f"document.getElementById('{name}').children.length > 1")
    look = "(id) => [...document.querySelectorAll(`#${id} .missing`)].map((e) => e.innerText).join(' ')"
    found = {name: tab.eval(f"({look})('{name}')") for name in sections}
    for name in sections[1:]:
        held = tab.eval(f"document.querySelectorAll('#{name} canvas, #{name} table').length")
        assert (held == 0) == bool(found[name]), name
    assert tab.problems() == []
    head: str = tab.eval("document.querySelector('header').innerText")
    tab.close()
    return found, head


def test_one_device_without_a_machine(browser: Browser, tmp_path: Path) -> None:
    found, _ = said(browser, tmp_path, page(report_data(tanh_on(1))))
    assert found["collectives"] == found["traffic"] == ONE
    assert found["timeline"].startswith(MACHINE) and found["operations"].startswith(MACHINE)
    assert found["memory"].startswith(MEMORY)


def test_several_devices_that_send_nothing(browser: Browser, tmp_path: Path) -> None:
    partitioned = tanh_on(4)
    text = page(report_data(partitioned, simulation=partitioned.simulate("h100-dgx"), bandwidth=3.35e12))
    found, head = said(browser, tmp_path, text)
    assert found["collectives"] == found["traffic"] == NONE
    assert found["timeline"] == found["memory"] == found["operations"] == ""
    assert "no products" in head


def test_one_device_of_a_machine(browser: Browser, tmp_path: Path) -> None:
    partitioned = tanh_on(1)
    text = page(report_data(partitioned, simulation=partitioned.simulate("h100-dgx"), bandwidth=3.35e12))
    found, head = said(browser, tmp_path, text)
    assert found["collectives"] == found["traffic"] == ONE and found["timeline"] == ""
    assert "1 device of h100-dgx:1\n" in head
