"""Errors that went through plain data are of the same class, and say the same."""

from __future__ import annotations

import json

import pytest

from shardc.hlo import errors
from shardc.hlo.errors import ShardcError
from shardc.launcher.executors.problems import from_problem, to_problem

FAMILY = [kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), ShardcError)]


@pytest.mark.parametrize("kind", FAMILY)
def test_an_error_of_the_family_comes_back(kind: type[ShardcError]) -> None:
    error = kind("it is too large", where="data=2", fix="more devices")
    back = from_problem(json.loads(json.dumps(to_problem(error))))
    assert (type(back), back.what, back.where, back.fix) == (kind, error.what, error.where, error.fix)
    assert back.exit_code == error.exit_code
