"""The pages do what they say: every block runs, in order, in an empty folder, and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_runner import PageRun, read_blocks

ROOT = Path(__file__).resolve().parent.parent
_CONCEPTS = ("mesh", "sharding", "propagation", "partial", "resharding", "plans", "collectives", "execution")
CONCEPTS = tuple(f"docs/concepts/{name}.md" for name in _CONCEPTS)
ADDED = ("an-op", "a-pass", "a-machine", "a-kernel", "a-transport", "an-order")
INTERNALS = tuple(f"docs/internals/add-{what}.md" for what in ADDED)
#: Pages that are followed from top to bottom.
PAGES = (
    "README.md",
    "docs/start.md",
    "docs/api.md",
    "docs/cli.md",
    "docs/service.md",
    "docs/troubleshooting.md",
    "docs/reference/environment.md",
    "docs/reference/report.md",
    "docs/guide-plans.md",
    "docs/host-memory.md",
    "docs/auto.md",
    "docs/explain.md",
    "docs/budgets.md",
    "docs/simulate.md",
    "docs/machines.md",
    "docs/quickstart-jax.md",
    "docs/quickstart-numpy.md",
    "docs/quickstart-mpi.md",
    "docs/quickstart-torch.md",
    "docs/guide-keras.md",
    "docs/guide-mpi.md",
    "docs/checkpoints.md",
    "docs/gpu.md",
    "docs/coming-from.md",
    "docs/cookbook.md",
    *CONCEPTS,
    *INTERNALS,
)
#: Pages whose package is large, so not every environment for tests has it.
NEEDS = {"docs/quickstart-torch.md": "torch"}


@pytest.mark.mpi
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    if page in NEEDS:
        pytest.importorskip(NEEDS[page], reason=f"{page} needs pip install shardc[{NEEDS[page]}]")
    blocks = read_blocks(page, (ROOT / page).read_text(encoding="utf-8"))
    assert blocks, page
    with PageRun(tmp_path) as run:
        for block in blocks:
            run.run(block)
    for path in tmp_path.glob("*.svg"):  # those of matplotlib differ between its releases
        kept = ROOT / "docs" / "images" / path.name
        if kept.exists() and "matplotlib" not in path.read_text(encoding="utf-8"):
            assert path.read_bytes() == kept.read_bytes(), f"{kept.name} is not what {page} draws: copy it from there"


@pytest.mark.parametrize("page", CONCEPTS)
def test_a_concept_has_a_drawing_and_links_to_the_glossary(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "](../images/" in text and "](../glossary.md#" in text


def written_files(page: str, text: str) -> dict[str, str]:
    """What a page writes, by file name: the contents of a ``file`` block, or the line of code that writes the file."""
    blocks = read_blocks(page, text)
    found = {block.file: block.text for block in blocks if block.file}
    for block in blocks:
        for line in block.text.splitlines():
            found |= {
                name: line.strip() for name in re.findall(r"(?:save|open)\(.*?\"([\w.-]+\.\w+)\"(?:, \"w\")?", line)
            }
            found |= {name: line.strip() for name in re.findall(r"(?:-o|--trace|--svg|--report) ([\w.-]+\.\w+)", line)}
    return {name: content for name, content in found.items() if not name.startswith("out.")}


def test_pages_in_one_folder_overwrite_no_file_of_another() -> None:
    """A reader follows several pages in one folder: each content has a file name of its own."""
    first: dict[str, tuple[str, str]] = {}
    clashes = []
    for page in PAGES:
        for name, content in written_files(page, (ROOT / page).read_text(encoding="utf-8")).items():
            if "open(" in content and '"w"' not in content:  # reads it
                continue
            other, before = first.setdefault(name, (page, content))
            if before.split("#")[0].strip() != content.split("#")[0].strip():
                clashes.append(f"{name}: {other} and {page}")
    assert clashes == []
