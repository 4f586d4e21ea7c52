"""Coordinates of devices in meshes, in their own order and in another."""

from __future__ import annotations

import pytest

from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.mesh import Mesh

GRID = Mesh({"data": 2, "model": 3})
REORDERED = Mesh({"data": 2, "model": 2}, device_ids=(2, 1, 0, 3))


@pytest.mark.parametrize("mesh", [GRID, REORDERED])
def test_coordinates_are_places_in_the_grid(mesh: Mesh) -> None:
    grid = mesh.grid()
    for device in grid.reshape(-1).tolist():
        assert grid[tuple(mesh.coordinates(device).values())] == device


@pytest.mark.parametrize(("mesh", "device"), [(GRID, 6), (GRID, -1), (REORDERED, -1), (REORDERED, 4)])
def test_a_device_that_the_mesh_lacks_is_refused(mesh: Mesh, device: int) -> None:
    with pytest.raises(InputError, match=f"has no device {device}") as caught:
        mesh.coordinates(device)
    assert str(caught.value.fix) == f"its devices are 0 to {mesh.size - 1}"


def test_a_truth_value_is_no_size() -> None:
    with pytest.raises(AnnotationError, match="does not give a name and a whole number"):
        Mesh({"data": True})
