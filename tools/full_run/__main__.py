"""``make test-full``: runs all parts, or those named, and writes docs/status.md after each.

What is finished stays in .full/COMMIT: the next run of the same commit goes on behind it. A tree with changes begins
anew. Ends with 0 when everything passed, 1 when something failed, 130 when it was interrupted.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tools.full_run import status
from tools.full_run.parts import PARTS
from tools.full_run.run import Result, run_parts, stored

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.full_run", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all of {', '.join(p.name for p in PARTS)}")
    parser.add_argument("--hours", type=float, default=24.0, help="when the whole run ends (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="also what this commit has results of")
    options = parser.parse_args()
    if unknown := set(options.parts) - {p.name for p in PARTS}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    commit, clean = commit_of(ROOT)
    folder = ROOT / ".full" / commit
    if options.again or not clean:
        for part in options.parts or [p.name for p in PARTS]:
            (folder / f"{part}.json").unlink(missing_ok=True)
    before = {p.name: r for p in PARTS if clean and (r := stored(folder, p)) is not None}
    began, document = now(), ROOT / "docs" / "status.md"

    def write(results: Mapping[str, Result]) -> None:
        run = status.Run(commit if clean else f"{commit} and changes", began, now())
        text = status.page(PARTS, {**before, **results}, run, ROOT)
        document.write_text(status.insert(document.read_text(encoding="utf-8"), text), encoding="utf-8")

    chosen = [p for p in PARTS if p.name in options.parts or not options.parts]
    results = run_parts(chosen, folder, ROOT, hours=options.hours, report=write, say=say)
    say(f"written to {document.relative_to(ROOT)}; the output of each part is in {folder.relative_to(ROOT)}")
    if any("interrupted" in r.stopped for r in results.values()):
        return 130
    return int(any(r.failed for r in results.values()))


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def commit_of(root: Path) -> tuple[str, bool]:
    """The commit's short name, and whether the tree is as there; the page that is written does not count."""
    git = shutil.which("git") or "git"

    def ask(*words: str) -> str:
        done = subprocess.run([git, *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = ask("rev-parse", "--short=10", "HEAD")
    changes = ask("status", "--porcelain", "--", ".", ":!docs/status.md")
    return commit or "no-commit", bool(commit) and not changes


if __name__ == "__main__":
    sys.exit(main())
