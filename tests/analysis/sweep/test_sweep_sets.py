"""Files with named sets of annotations."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc import P
from shardc.analysis.sweep.meshes import Limit
from shardc.analysis.sweep.sets import AnnotationSet, join_files, read_sets, sets_of
from shardc.hlo.errors import AnnotationError, InputError


def written(folder: Path, text: str, name: str = "sets.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_sets_have_what_is_common_and_their_own(tmp_path: Path) -> None:
    text = """
        [axes]
        model = "1..8"
        [annotate]
        x = "data"
        w = "None"
        [sets.a.annotate]
        w = ["None", "model"]
        [sets.b.axes]
        model = 1
        pipe = [2, 4]
    """
    found = read_sets(written(tmp_path, text))
    a, b = found.sets
    assert (a.name, a.specs, a.limits) == ("a", {"x": "data", "w": "None,model"}, {"model": Limit(1, 8)})
    assert (b.name, b.specs) == ("b", {"x": "data", "w": "None"})
    assert b.limits == {"model": Limit(only=(1,)), "pipe": Limit(only=(2, 4))}
    assert found.axes == ("model", "pipe")


def test_a_file_for_other_commands_is_one_set(tmp_path: Path) -> None:
    found = read_sets(written(tmp_path, '[mesh]\ndata = 2\n[annotate]\nx = "data"', "mine.toml"))
    assert found.sets == (AnnotationSet("mine", {"x": "data"}),)
    assert found.axes == ("data",)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[sets.a.annotate]\n[sets.a.annotate]", InputError, "not a TOML file"),
        ("[set.a.annotate]", AnnotationError, "unknown table set"),
        ("[sets.a]\nx = 'data'", AnnotationError, "unknown table sets.a.x"),
        ("[sets]\na = 1", AnnotationError, "sets.a must be a table"),
        ("[annotate]\nx = 3", AnnotationError, "spec of 'x' is 3"),
        ("[axes]\nx = '8..4'", InputError, "limit of an axis"),
        ("sets = 1", AnnotationError, "sets must be a table"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        read_sets(written(tmp_path, text))
    assert "sets.toml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the annotations file"):
        read_sets(tmp_path / "no.toml")


def test_names_are_unique_across_files(tmp_path: Path) -> None:
    files = [read_sets(written(tmp_path, "[sets.a.annotate]", name)) for name in ("1.toml", "2.toml")]
    with pytest.raises(AnnotationError, match="two annotation sets are called 'a'"):
        join_files(files)


def test_sets_from_python() -> None:
    assert sets_of({"a": {"x": P("data")}}).sets == (AnnotationSet("a", {"x": P("data")}),)
    assert [s.name for s in sets_of(None).sets] == ["as given"]
    for wrong in ({}, {"a": "data"}, 3):
        with pytest.raises(InputError, match="sets must map each set's name"):
            sets_of(wrong)
