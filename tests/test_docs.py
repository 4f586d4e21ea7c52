"""The docs speak of things that exist: error texts, commands, public names, files."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import shardc

FOLDERS = (
    "native",
    "hlo",
    "sharding",
    "costs",
    "collectives",
    "partitioner",
    "compiler",
    "launcher",
    "frontends",
    "analysis",
    "service",
    "shardc/cli",
    "shardc/stages",
)


@pytest.fixture(scope="module")
def source(repository: Path) -> str:
    """All of our code; placeholders of f-strings and line breaks inside messages do not matter."""
    files = [p for folder in FOLDERS for p in sorted((repository / folder).rglob("*.py"))]
    text = "\n".join(p.read_text(encoding="utf-8") for p in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def error_texts(repository: Path) -> list[str]:
    text = (repository / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    return [r for r in rows if r not in ("text", "---")]


def test_every_error_text_is_one_of_ours(repository: Path, source: str) -> None:
    texts = error_texts(repository)
    assert len(texts) > 15
    for text in texts:
        for fragment in re.split(r"\.\.\.", text):
            if len(fragment.strip(" ,")) > 3:
                assert fragment.strip(" ,") in source, f"{text!r}: {fragment!r} stands nowhere in the code"


def test_public_names_in_the_docs_exist(repository: Path) -> None:
    guides = [f"docs/quickstart-{kind}.md" for kind in ("jax", "mpi", "numpy")]
    for name in ("README.md", "docs/api.md", *guides):
        for word in re.findall(r"\bshardc\.([A-Za-z_]+)", (repository / name).read_text(encoding="utf-8")):
            assert word in ("demo", "hlo") or hasattr(shardc, word), f"{name}: shardc.{word}"


def test_commands_in_the_docs_exist(repository: Path) -> None:
    from typer.main import get_command

    from shardc.cli.app import app

    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    for path in [repository / "README.md", *(repository / "docs").glob("*.md")]:
        for word in re.findall(r"^(?:srun .*?)?shardc ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert word in commands, f"{path.name}: shardc {word}"


def test_links_lead_somewhere(repository: Path) -> None:
    for path in [repository / "README.md", repository / "CONTRIBUTING.md", *(repository / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_numpy_quickstart_runs(repository: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = (repository / "docs" / "quickstart-numpy.md").read_text(encoding="utf-8")
    script = tmp_path / "quickstart.py"
    script.write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], encoding="utf-8")
    runpy.run_path(str(script))
    printed = capsys.readouterr().out
    assert "all-reduce" in printed
    assert "quickstart.py:" in printed
