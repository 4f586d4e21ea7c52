"""Writes what came out of a full run into docs/status.md, between its markers; the text around them is by hand."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.full_run.run import Part, Result, Test, count

__all__ = ["FIGURES", "Run", "insert", "page"]

BEGIN, END = "<!-- full run -->", "<!-- end -->"
PACKAGES = ("jax", "jaxlib", "numpy", "ml_dtypes", "llvmlite", "mpi4py", "mpich", "hypothesis", "pytest")

#: What the outcomes of tests say in numbers, by patterns of their names; ``record_property("figure: NAME", text)`` of a
#: test adds what outcomes do not say.
FIGURES: Mapping[str, str] = {
    "OpenXLA's StableHLO programs that check themselves, in the evaluator": "*/test_stablehlo.py::test_evaluator[[]*",
    "OpenXLA's StableHLO programs that check themselves, in compiled code": "*/test_stablehlo.py::test_compiled[[]*",
    "OpenXLA's interpreter cases, in the evaluator": "*/test_interpret.py::test_evaluator[[]*",
    "OpenXLA's interpreter cases on several devices, compiled": "*/test_interpret.py::test_devices[[]*",
    "HLO texts of XLA's tests, jaxlib as judge": "*/test_hlo_text.py::test_text[[]*",
    "sharded HLO texts of XLA's tests": "*/test_hlo_sharded.py::test_case[[]*",
    "Shardy's propagation tests": "*/test_shardy_propagation.py::test_propagation[[]*",
    "Shardy's end-to-end programs": "*/test_shardy_executable.py::test_case[[]*",
    "JAX's own tests that pass on XLA:CPU, on the platform shardc": "*/test_jax_suite.py::test_case[[]*",
    "functions of JAX": "*/test_jax_functions.py::test_function[[]*",
    "calls of NumPy functions, evaluated": "*/test_trace_table.py::test_evaluated[[]*",
    "calls of NumPy functions, compiled": "*/test_trace_table.py::test_compiled[[]*",
    "programs of libraries": "*/test_libraries.py::test_as_jax_makes_it[[]*",
}


@dataclass(frozen=True)
class Run:
    """Where and when: ``commit`` as git names it, ``began`` and ``ended`` as text."""

    commit: str
    began: str
    ended: str


def page(parts: Sequence[Part], results: Mapping[str, Result], run: Run, root: Path) -> str:
    """The generated sections, in Markdown."""
    sections = [
        machine(run),
        "### Parts\n\n" + parts_table(parts, results),
        "### Not run\n\n" + not_run(parts, results),
        "### Failures\n\n" + failures(parts, results),
        "### Figures of this run\n\n" + figures(parts, results),
        "### Seeds\n\n" + seeds(parts, results),
    ]
    text = "\n\n".join(s.strip() for s in sections)
    return text.replace(str(root.parent), "..")


def insert(document: str, text: str) -> str:
    """The document with ``text`` between its markers."""
    before, found, rest = document.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the page has no place for a run: {BEGIN} to {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def machine(run: Run) -> str:
    found = {d.metadata["Name"].lower().replace("-", "_"): d.version for d in importlib.metadata.distributions()}
    versions = ", ".join(f"{p} {found[p]}" for p in PACKAGES if p in found)
    return (
        f"Commit {run.commit}, {run.began} to {run.ended}.\n"
        f"{cores()} cores ({processor()}), {memory()}, {platform.system()} {platform.release().split('-')[0]}, "
        f"{platform.machine()}.\nPython {platform.python_version()}, {versions}."
    )


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.*)", path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1].strip() if found else platform.processor() or "unknown processor"


def memory() -> str:
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    cells = [[c.replace("|", "\\|").replace("\n", " ") for c in row] for row in rows]
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(r) + " |" for r in cells)])


def parts_table(parts: Sequence[Part], results: Mapping[str, Result]) -> str:
    rows = []
    for part in parts:
        r = results.get(part.name)
        if r is None or (r.stopped and not r.seconds):
            rows.append([part.name, part.what, "not run", "", "", "", ""])
            continue
        counts = [f"{count(r.tests, kind):,}" if r.tests else "" for kind in ("passed", "failed", "skipped")]
        state = "stopped" if r.stopped else "failed" if r.failed else "passed"
        rows.append([part.name, part.what, state, *counts, f"{r.seconds / 60:.1f} min"])
    return table(("part", "what", "state", "passed", "failed", "skipped", "time"), rows)


def not_run(parts: Sequence[Part], results: Mapping[str, Result]) -> str:
    """Parts that were not begun, what a stopped part left, and skipped tests by their reason."""
    rows = []
    for part in parts:
        r = results.get(part.name)
        if r is None:
            rows.append([part.name, "all", "not asked for in this run"])
        elif r.stopped and not r.seconds:
            rows.append([part.name, "all", r.stopped])
        elif r.stopped:
            left = f"{max(0, r.planned - len(r.tests)):,} of {r.planned:,}" if r.planned else "all"
            rows.append([part.name, left, r.stopped])
        reasons = Counter((file(t), t.why) for t in (r.tests if r else ()) if t.outcome == "skipped")
        rows += [[f"{part.name}: `{where}`", f"{n:,}", why] for (where, why), n in sorted(reasons.items())]
    return table(("what", "tests", "reason"), rows) if rows else "Everything was run."


def failures(parts: Sequence[Part], results: Mapping[str, Result]) -> str:
    lines = []
    for part in parts:
        r = results.get(part.name)
        if r is None or not r.failed:
            continue
        failed = [f"* `{t.id}`" for t in r.tests if t.outcome == "failed"]
        lines += failed or [f"* {part.name} ended with code {r.code}"]
    return "\n".join(dict.fromkeys(lines)) or "None."  # parts may share tests


def figures(parts: Sequence[Part], results: Mapping[str, Result]) -> str:
    """Of what was run; a figure without a test in this run is left out, one of a part that was stopped says so."""
    tests = [t for p in parts if p.name in results for t in results[p.name].tests]
    stopped = {t.id for p in parts if p.name in results and results[p.name].stopped for t in results[p.name].tests}
    rows = []
    for name, pattern in FIGURES.items():
        found = {t.id: t for t in reversed(tests) if fnmatch.fnmatchcase(t.id, pattern)}.values()  # the first part's
        if found:
            so_far = " so far" if any(t.id in stopped for t in found) else ""
            passed = f"{count(found, 'passed'):,} of {len(found):,}{so_far}"
            rows.append([name, "not run" if count(found, "skipped") == len(found) else passed])
    rows += [
        list(f) for f in {name: text for t in tests for name, text in t.figures.items()}.items()
    ]  # the last part's
    return table(("figure", "value"), rows) if rows else "None."


def seeds(parts: Sequence[Part], results: Mapping[str, Result]) -> str:
    """Tests with ten numbers and more as their one parameter: where they begin and end."""
    numbers: dict[str, list[int]] = {}
    for part in parts:
        for test in results[part.name].tests if part.name in results else ():
            if (found := re.fullmatch(r"(.*)\[(\d+)\]", test.id)) and test.outcome != "skipped":
                numbers.setdefault(found[1], []).append(int(found[2]))
    rows = [
        [f"`{n}`", f"{min(s):,} to {max(s):,}", f"{len(set(s)):,}"] for n, s in sorted(numbers.items()) if len(s) >= 10
    ]
    text = "Hypothesis draws the same examples in every run (`derandomize`), or those of seed 0."
    return text + ("\n\n" + table(("test", "seeds or blocks", "how many"), rows) if rows else "")


def file(test: Test) -> str:
    return test.id.partition("::")[0]
