"""A pytest plugin that writes every result to the file of $SHARDC_FULL_RECORD at once, so that a stopped run keeps it.

Lines of JSON: ``{"planned": 80}``, then ``{"test": id, "outcome": "passed", "seconds": 1.2}`` per test, with ``"why"``
for skipped ones and ``"figures": {name: text}`` where a test recorded some (``record_property("figure: NAME", text)``).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "SHARDC_FULL_RECORD"
FIGURE = "figure: "


def pytest_configure(config: pytest.Config) -> None:
    # Taken out of the environment: tests that start pytest again are one test here.
    path = os.environ.pop(VARIABLE, None)
    os.environ.pop("PYTEST_ADDOPTS", None)
    if path is not None:
        config.pluginmanager.register(Recorder(path), "full-run-recorder")


class Recorder:
    """Gathers the three reports of each test; the process that workers report to has one."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.planned: int | None = None
        self.open: dict[str, dict[str, Any]] = {}

    def write(self, **line: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def plan(self, tests: int) -> None:
        if self.planned is None:
            self.planned = tests
            self.write(planned=tests)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.plan(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self.plan(len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write(test=report.nodeid, outcome="failed", seconds=0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        line = self.open.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        line["seconds"] = round(line["seconds"] + report.duration, 3)
        figures = {name.removeprefix(FIGURE): str(v) for name, v in report.user_properties if name.startswith(FIGURE)}
        if figures:
            line["figures"] = figures
        if report.failed:
            line["outcome"] = "failed"
        elif report.skipped and line["outcome"] == "passed":
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(getattr(report, "wasxfail", ""))
            line |= {"outcome": "skipped", "why": why.removeprefix("Skipped: ")}
        if report.when not in ("setup", "call"):  # the last one; xdist's of a worker that crashed has a name of its own
            self.write(test=report.nodeid, **self.open.pop(report.nodeid))
