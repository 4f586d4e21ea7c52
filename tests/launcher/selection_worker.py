"""One rank of a job that computes with ``x[mask]`` of split arrays, and compares with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError, UnsupportedError

MESH = Mesh({"d": shardc.process_count()})
KNOWN = np.arange(7) % 3 == 0


def _changed(x: Any, change: Callable[[Any], None]) -> Any:
    change(x)
    return x


def _subtract(x: Any) -> None:
    x[x > 5] -= 7


def _twice(x: Any) -> None:
    mask = x > 5
    x[mask] += 1
    x[mask] = x[mask] ** 2 + 1.5 * x[mask]


def _equal_masks(x: Any) -> None:
    x[x > 5] = x[x > 5] * 2


def _kept(x: Any) -> None:
    """A selection is a copy: neither the array nor the mask changes it."""
    mask = x > 5
    selected, same = x[mask], mask.copy()
    x[mask] = 0
    mask[...] = False
    selected -= 3
    x[same] = selected


def _rows(x: Any) -> None:
    mask = x[:, 0] > 3
    x[mask] -= x[mask].mean(0)


def _view(x: Any) -> None:
    part = x[1:5]
    part[part > 6] -= 1
    x.T[x.T > 9] += 0.5


def _known_mask(x: Any) -> None:
    x[KNOWN] = x[KNOWN] * 2 + 1


def _sorted(x: Any) -> None:
    mask = x > 3
    x[mask] = np.sort(shardc.gather(x[mask]))[::-1]


def _split_values(x: Any) -> None:
    x[:, 0][x[:, 0] > 5] = x[1:5, 1]


CHANGES = (_subtract, _twice, _equal_masks, _kept, _rows, _view, _known_mask, _sorted, _split_values)

VALUES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x[x > 3].sum(),
    "statistics": lambda x: tuple(getattr(x[x > 3], f)() for f in ("mean", "std", "var", "prod", "max", "min")),
    "of rows": lambda x: (x[x[:, 0] > 3].sum(0), x[x[:, 0] > 3].max(axis=0), x[x[:, 0] > 3].mean(1).sum()),
    "of integers": lambda x: (x.astype(np.uint8)[x > 3].max(), (x.astype(np.int32)[x > 3] // 2).min()),
    "of none": lambda x: (x[x > 99].sum(), len(x[x > 99])),
    "what it is": lambda x: (x[x > 3].shape, x[x > 3].size, x[x > 3].ndim, str(x[x > 3].dtype)),
    "comparisons": lambda x: ((x[x > 3] > 5).sum(), (x[x > 3] > 2).all(), np.count_nonzero(x[x > 3] > 5)),
    "elementwise": lambda x: np.sum(np.sqrt(abs(-x[x > 3])) + 1),
    "converted": lambda x: x[x > 3].astype(np.float32).sum(),
    "gathered": lambda x: shardc.gather(x[x > 3]),
    "a known mask": lambda x: x[KNOWN],
}

ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "order": (lambda x: np.sort(x[x > 3]), UnsupportedError, "sort of x[mask]"),
    "one element": (lambda x: x[x > 3][0], UnsupportedError, "an index of x[mask]"),
    "a loop": (lambda x: list(x[x > 3]), UnsupportedError, "a loop over x[mask]"),
    "two masks": (lambda x: x[x > 3] + x[x > 4], UnsupportedError, "another mask"),
    "elements": (lambda x: np.asarray(x[x > 3]), InputError, "shardc.gather(x[mask])"),
    "no element": (lambda x: x[x > 99].max(), ValueError, "zero-size array to reduction operation maximum"),
    "too few values": (lambda x: x.__setitem__(x > 5, [1.0, 2.0]), ValueError, "shape (2,)"),
}


def numbers() -> Any:
    return np.arange(14.0).reshape(7, 2)


def array() -> Any:
    return shardc.array(numbers(), (MESH, P("d")), copy=True)


def agree(name: str, found: Any, wanted: Any) -> None:
    found = shardc.gather(found)
    for f, w in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
        np.testing.assert_allclose(f, w, rtol=1e-12, err_msg=name) if not isinstance(w, str) else None
        assert np.asarray(f).dtype == np.asarray(w).dtype, name


def main() -> None:
    for change in CHANGES:
        agree(change.__name__, _changed(array(), change), _changed(numbers(), change))
    for name, value in VALUES.items():
        agree(name, value(array()), value(numbers()))
    for name, (ask, kind, text) in ERRORS.items():
        try:
            ask(array())
        except kind as e:
            assert text in str(e), (name, e)
        else:
            raise AssertionError(name)
    selected = array()[array() > 3]
    if shardc.process_index() == 0:  # No other rank is asked.
        assert "10" in repr(selected) and len(selected) == 10


if __name__ == "__main__":
    main()
    print("all agree")
