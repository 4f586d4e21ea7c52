"""Names of mesh axes that the notations could not tell apart."""

from __future__ import annotations

import pytest

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.mesh import Mesh


@pytest.mark.parametrize("name", ["", " ", " data", "a=b", "a,b", "a+b", 'a"b', "{a}"])
def test_names_that_notations_cannot_tell_are_errors(name: str) -> None:
    with pytest.raises(AnnotationError, match="a mesh axis cannot be called"):
        Mesh({name: 2})


@pytest.mark.parametrize("name", ["data", "axis_0", "data.1", "my axis", "x:0", "größe"])
def test_other_names_are_taken(name: str) -> None:
    assert Mesh({name: 2}).axis_names == (name,)
