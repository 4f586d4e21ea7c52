"""The docs speak of things that exist: error texts, commands, public names, files."""

from __future__ import annotations

import re
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
    guides = [f"docs/quickstart-{kind}.md" for kind in ("jax", "mpi", "numpy", "torch")]
    for name in ("README.md", "docs/api.md", *guides):
        for word in re.findall(r"\bshardc\.([A-Za-z_]+)", (repository / name).read_text(encoding="utf-8")):
            assert word in ("demo", "hlo") or hasattr(shardc, word), f"{name}: shardc.{word}"


def test_commands_in_the_docs_exist(repository: Path) -> None:
    from typer.main import get_command

    from shardc.cli.app import app

    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    for path in [repository / "README.md", *(repository / "docs").rglob("*.md")]:
        blocks = re.findall(r"^```(?:sh|bash)\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for word in re.findall(r"^(?:srun .*?)?shardc ([a-z]+)", "\n".join(blocks), re.MULTILINE):
            assert word in commands, f"{path.name}: shardc {word}"


def test_links_lead_somewhere(repository: Path) -> None:
    for path in [repository / "README.md", repository / "CONTRIBUTING.md", *(repository / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_paths_in_the_docs_exist(repository: Path) -> None:
    """Words in code style that begin with one of our folders; capitals and stars stand for any name."""
    tops = {p.name for p in repository.iterdir() if p.is_dir() and not p.name.startswith(".")}
    count = 0
    for page in [repository / "README.md", repository / "CONTRIBUTING.md", *(repository / "docs").rglob("*.md")]:
        for path in re.findall(r"`((?:[\w.-]+/)+[\w.*-]*)(?:::\w+)?`", page.read_text(encoding="utf-8")):
            if path.split("/")[0] in tops:
                count += 1
                assert any(repository.glob(re.sub(r"[A-Z]{3,}", "*", path).rstrip("/"))), f"{page.name}: {path}"
    assert count > 100


def test_the_glossary_says_each_term_once(repository: Path) -> None:
    text = (repository / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    terms = [row[0] for row in rows if row[0] not in ("term", "---") and not row[0].startswith("---")]
    assert len(terms) == len(set(terms)) > 60
    for row in rows:
        assert len(row) == 3, row


GUIDES = ("api", "auto", "explain", "simulate", "machines", "guide-plans", "guide-mpi", "checkpoints", "gpu", "service")
QUICKSTARTS = ("quickstart-jax", "quickstart-numpy", "quickstart-mpi", "quickstart-torch")
FIRST = ("start", "cli", *QUICKSTARTS, "coming-from", "limits")


@pytest.mark.parametrize("page", GUIDES + FIRST)
def test_a_guide_links_its_terms_to_the_glossary(repository: Path, page: str) -> None:
    glossary = (repository / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = set(re.findall(r"<span id=\"([\w-]+)\">", glossary))
    linked = re.findall(r"\]\(glossary\.md#([^)]+)\)", (repository / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert linked and set(linked) <= terms, linked


def status_rows(text: str) -> dict[str, str]:
    """The cells of two-column rows and wider by the first one, links reduced to their words."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    rows = [re.split(r"(?<!\\) \| ", line.strip().removeprefix("| ").removesuffix(" |")) for line in plain.splitlines()]
    return {re.sub(r" \([^)]*\)$", "", row[0]): row[1] for row in rows if len(row) > 1}


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", text)


def test_the_readmes_status_is_that_of_the_page(repository: Path) -> None:
    """Every line has a row of the same name on docs/status.md or says no number, and every number is in that row."""
    readme = (repository / "README.md").read_text(encoding="utf-8")
    lines = status_rows(readme.partition("## Status")[2].partition("\n## ")[0])
    page = status_rows((repository / "docs" / "status.md").read_text(encoding="utf-8"))
    del lines["what"], lines["---"]
    assert 8 <= len(lines) <= 10
    for name, text in lines.items():
        if numbers(text.replace("x86-64", "").replace("AArch64", "")):
            assert set(numbers(text)) <= set(numbers(page[name])), f"{name}: {text}\ndocs/status.md: {page[name]}"


def test_figures_of_the_last_full_run_are_those_that_stand_below_it(repository: Path) -> None:
    """A count such as 1,189 of 1,189 of the generated half stands in the half by hand too.

    Where parts were left out, some tests of a figure may be among them: then only equal totals are compared.
    """
    text = (repository / "docs" / "status.md").read_text(encoding="utf-8")
    generated, _, by_hand = text.partition("<!-- full run -->")[2].partition("<!-- end -->")
    partial = "| not run |" in generated or "| stopped |" in generated
    for name, value in re.findall(r"^\| (.*?) \| ([\d,]+ of [\d,]+) \|$", generated, re.MULTILINE):
        passed, _, total = value.partition(" of ")
        if partial and total not in by_hand:
            continue
        assert passed in by_hand and total in by_hand, f"{name}: {value}, which the figures below do not say"


def test_the_readme_fits_on_two_screens(repository: Path) -> None:
    assert len((repository / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
