"""Bundled programs survive another size of each axis, by the command line and in the explorer's orders."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

import shardc
from shardc import Mesh
from shardc.cli.app import main
from shardc.hlo.errors import AnnotationError
from shardc.service.explorer.files import files

#: Programs that come with the package, with the mesh that pages and explorer show them over.
_PROGRAMS = (
    ("shardc.demo.guide", "step.mlir", {"data": 2, "model": 2}),
    ("shardc.demo", "step.hlo", {"data": 2, "model": 2}),
    ("shardc.demo", "step.hlo", {"axis_0": 2, "axis_1": 2}),
    ("shardc.service.explorer", "perceptron.hlo", {"data": 4, "model": 2}),
)
_STEP = Path(shardc.__file__).parent / "demo" / "step.hlo"


def doubled() -> Iterator[tuple[str, str, dict[str, int]]]:
    for package, name, mesh in _PROGRAMS:
        for axis in mesh:
            yield package, name, {**mesh, axis: 2 * mesh[axis]}


@pytest.mark.parametrize(("package", "name", "mesh"), list(doubled()))
def test_each_axis_of_a_bundled_program_can_be_doubled(
    package: str, name: str, mesh: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes((resources.files(package) / name).read_bytes())
    given = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    assert main(["partition", str(tmp_path / name), "--mesh", given, "-o", str(tmp_path / "out.hlo"), "-q"]) == 0
    assert f"({given})" in capsys.readouterr().out
    # The explorer's order: the same mesh, given to the same program.
    facts = shardc.load(tmp_path / name).annotate({}, Mesh(mesh)).propagate().partition().report()
    assert facts["mesh"] == mesh and facts["devices"] == Mesh(mesh).size
    if name != "perceptron.hlo":  # nothing in that one is annotated
        assert {axis for c in facts["collectives"] for axis in c["axes"]} == set(mesh)


def test_a_named_axis_alone_is_resized(tmp_path: Path) -> None:
    path = tmp_path / "transformer.hlo"
    path.write_bytes(files()["transformer.hlo"][1])
    assert shardc.load(path).annotate({}, Mesh({"axis_1": 4})).mesh == Mesh({"axis_0": 2, "axis_1": 4})


def test_tiles_are_resized_as_named_axes_are() -> None:
    """What 8 devices hold is the same, whether the axes were named before or with the mesh."""
    large = Mesh({"data": 2, "model": 4})
    at_once = shardc.load(_STEP).annotate({}, large)
    named = shardc.load(_STEP).annotate({}, Mesh({"data": 2, "model": 2})).annotate({}, large)
    assert [p.sharding for p in at_once.module.parameters] == [p.sharding for p in named.module.parameters]


def test_a_mesh_of_other_axes_is_refused_with_the_way_out() -> None:
    with pytest.raises(AnnotationError, match="tiles of 2x2 devices") as refused:
        shardc.load(_STEP).annotate({}, Mesh({"a": 2, "b": 2, "c": 4}))
    assert "a mesh of 4 devices or of 2 axes" in str(refused.value)
