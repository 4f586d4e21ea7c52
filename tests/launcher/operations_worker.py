"""One rank of a job that computes with arrays, and compares with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError, UnsupportedError
from tests.launcher.operations_cases import CHANGES, VALUES, samples

MESH = Mesh({"a": 2, "b": 2})


def agree(found: Any, wanted: Any) -> None:
    found = shardc.gather(found)
    if isinstance(wanted, tuple | list):
        for f, w in zip(found, wanted, strict=True):
            agree(f, w)
    elif isinstance(wanted, np.ndarray | np.generic):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
    else:
        assert found == wanted


def arrays() -> tuple[Any, ...]:
    specs = P("a", "b"), P("a"), P("a"), P("b")
    return tuple(shardc.array(x, (MESH, s), copy=True) for x, s in zip(samples(7), specs, strict=True))


def what_is_not_here() -> None:
    """What needs a value that this rank has a part of says so; scalars are everywhere."""
    x, *_ = arrays()
    for ask in (np.asarray, np.unique, lambda x: np.sort(x[x > 0.5]), lambda x: x.tolist()):
        try:
            ask(x)
        except (InputError, UnsupportedError) as e:
            assert "shardc.gather" in str(e), e
        else:
            raise AssertionError(ask)
    assert str(x) == repr(x)
    total = x.sum()
    if shardc.process_index() == 0:  # No other rank is asked.
        assert f"{total:.6f} {float(total * 2) > 0} {np.sqrt(total) < 1}".startswith(f"{samples(7)[0].sum():.6f} True")


def main() -> None:
    for name, case in VALUES.items():
        if name != "of values":
            agree(case(*arrays()), case(*samples(7)))
    for change in CHANGES.values():
        given, plain = arrays(), samples(7)
        agree(change(*given[:2]), change(*plain[:2]))
        agree(given, plain)
    what_is_not_here()


if __name__ == "__main__":
    main()
    if shardc.process_index() == 0:
        print("all agree")
