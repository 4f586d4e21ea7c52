"""OpenXLA's public test data: where it lies, and how its suites fared."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def conformance_folder() -> Path:
    return Path(os.environ.get("SHARDC_CONFORMANCE", ROOT.parent / "shared" / "conformance"))


def suite_summary(stats: Mapping[str, Iterable[Any]]) -> list[str]:
    """One line per suite from pytest's reports by outcome: what passed, failed and is unsupported."""
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in stats.get(outcome, ()):
            file, _, test = getattr(report, "nodeid", "").partition("::")
            if "tests/conformance/" in file and "[absent]" not in test:
                suite = f"{Path(file).stem.removeprefix('test_')} ({test.partition('[')[0].removeprefix('test_')})"
                counts.setdefault(suite, Counter())["failed" if outcome == "error" else outcome] += 1
    return [
        f"{suite}: {count['passed']} passed, {count['failed']} failed, {count['skipped']} unsupported"
        for suite, count in sorted(counts.items())
    ]
