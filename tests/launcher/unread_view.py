"""A rank shows views and refuses to pickle arrays, on its own: nothing of that communicates."""

from __future__ import annotations

import pickle

import numpy as np

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError

x = shardc.array(np.arange(40.0).reshape(10, 4), (Mesh({"d": shardc.process_count()}), P("d")))
row, rows = x[3], x[1:7]
if shardc.process_index() == 0:
    whole = "shardc.Array(f64[10,4], [{d}, {}])"
    assert str(row) == repr(row) == f"shardc.Array(f64[4], a view of {whole})"
    assert repr(rows[1]) == f"shardc.Array(f64[4], a view of {whole})"
    try:
        pickle.dumps(x)
    except InputError as e:
        assert "shardc.gather(x)" in str(e)
    else:
        raise AssertionError("pickled")
assert float(shardc.gather(row + 0).sum()) == 54
print("done")
