"""SciPy on traced values: functions that ask an array for its namespace, in a process of its own with that switched on,
and special functions that are ufuncs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.signal
import scipy.special

import shardc
from shardc.hlo.errors import UnsupportedError

PROGRAM = """
import numpy as np, scipy, shardc
from scipy import fft, integrate, linalg, optimize, signal, special, stats
from shardc import Mesh

x = np.random.default_rng(0).standard_normal(64)
FUNCTIONS = {
    "logsumexp": special.logsumexp, "softmax": special.softmax, "log_softmax": special.log_softmax,
    "hilbert": signal.hilbert, "resample": lambda x: signal.resample(x, 32),
    "oaconvolve": lambda x: signal.oaconvolve(x, np.ones(5, like=x) if hasattr(x, "recorder") else np.ones(5)),
    "trapezoid": integrate.trapezoid, "cumulative_trapezoid": integrate.cumulative_trapezoid,
    "romb": lambda x: integrate.romb(x[:33]), "cumulative_simpson": lambda x: integrate.cumulative_simpson(x),
    "block_diag": lambda x: linalg.block_diag(x[:2], x[2:5]),
    "rosen": optimize.rosen, "rosen_der": optimize.rosen_der, "rosen_hess": lambda x: optimize.rosen_hess(x[:5]),
    "zscore": stats.zscore, "skew": stats.skew, "kurtosis": stats.kurtosis, "moment": lambda x: stats.moment(x, 3),
    "sem": stats.sem, "gmean": lambda x: stats.gmean(abs(x)), "trim_mean": lambda x: stats.trim_mean(x, 0.1),
    **{n: lambda x, f=getattr(special, n): f(abs(x) / 4) for n in ("expit", "logit", "erf", "entr")},
    **{n: lambda x, f=getattr(special, n): f(abs(x), x * x) for n in ("rel_entr", "xlogy", "kl_div", "huber")},
    "fft": fft.fft, "rfft": fft.rfft, "fftshift": fft.fftshift,
}
for name, function in FUNCTIONS.items():
    made = shardc.trace(function, x, mesh=Mesh({"d": 1})).partition().compile("cpu")(x)
    np.testing.assert_allclose(np.asarray(made), function(x), rtol=1e-9, atol=1e-9, err_msg=name)
try:
    shardc.trace(special.gammaln, x)
except shardc.ShardcError as e:
    assert "gammaln is not supported in a traced function" in str(e), e
print(len(FUNCTIONS), "agree")
"""


def test_functions_that_ask_for_a_namespace() -> None:
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-2:] == ["32", "agree"]


MIXED = """
import numpy as np, shardc
from scipy import stats
from shardc.hlo.errors import UnsupportedError

x = np.ones(64)
try:
    shardc.trace(lambda x: stats.zmap(x, np.ones(64)), x)
except UnsupportedError as error:
    print(error)
"""


def test_traced_and_plain_arrays_together_are_refused_at_the_users_line() -> None:
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", MIXED], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    assert "SciPy's zmap was called with both traced and plain arrays" in done.stdout
    assert "<string>:8" in done.stdout and "np.asarray(plain, like=x)" in done.stdout


def _filtered(x: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = 0.5 * x[0]
    for n in range(1, len(x)):
        y[n] = 0.5 * x[n] - 0.3 * y[n - 1]
    return y


WAYS_OUT: dict[str, tuple[Any, Any, str]] = {
    "convolve": (lambda x: scipy.signal.convolve(x, x[:5]), lambda x: np.convolve(x, x[:5]), "np.convolve"),
    "correlate": (
        lambda x: scipy.signal.correlate(x, x[:5], "same"),
        lambda x: np.correlate(x, x[:5], "same"),
        "np.correlate",
    ),
    "lfilter": (lambda x: scipy.signal.lfilter([0.5], [1, 0.3], x), _filtered, "the loop"),
    "medfilt": (lambda x: scipy.signal.medfilt(x, 3), None, "outside of the function"),
}


@pytest.mark.parametrize("name", WAYS_OUT)
def test_functions_that_ask_for_elements_tell_what_does_the_same(name: str) -> None:
    function, instead, told = WAYS_OUT[name]
    x = np.random.default_rng(0).standard_normal(40)
    with pytest.raises(UnsupportedError, match=told) as error:
        shardc.trace(function, x)
    assert f"in SciPy's {name}: " in str(error.value) and "test_array_api.py" in str(error.value)
    if instead is not None:
        made = shardc.trace(instead, x).partition().compile("cpu")(x)
        np.testing.assert_allclose(np.asarray(made), function(x), rtol=1e-9, atol=1e-12)


SPECIAL: dict[str, Any] = {
    "expit": scipy.special.expit,
    "logit": lambda x: scipy.special.logit(scipy.special.expit(x)),
    "log_expit": scipy.special.log_expit,
    "erf": scipy.special.erf,
    "exp10": scipy.special.exp10,
    "xlogy": lambda x: scipy.special.xlogy(np.abs(x), np.abs(x)),
    "xlog1py": lambda x: scipy.special.xlog1py(x, np.abs(x)),
    "entr": scipy.special.entr,
    "rel_entr": lambda x: scipy.special.rel_entr(np.abs(x), np.abs(x[::-1])),
    "kl_div": lambda x: scipy.special.kl_div(x, np.abs(x[::-1])),
    "huber": lambda x: scipy.special.huber(0.7, x),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name: str, dtype: Any) -> None:
    """Numbers, both zeros, infinities, NaN."""
    x = np.random.default_rng(0).standard_normal(61).astype(dtype)
    x[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.0]
    function = SPECIAL[name]
    with np.errstate(all="ignore"):
        wanted = function(x)
    made = np.asarray(shardc.trace(function, x).partition().compile("cpu")(x))
    assert made.dtype == wanted.dtype
    error = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(made, wanted, rtol=error, atol=error)


def test_what_depends_on_no_argument_is_known() -> None:
    def function(x: Any) -> Any:
        weights = np.arange(4, like=x) * 2
        assert weights[1] == 2 and int(weights[3]) == 6 and list(range(weights[1])) == [0, 1]
        elements = np.asarray(weights)
        assert not elements.flags.writeable
        return x * elements.sum()

    x = np.ones(4)
    np.testing.assert_array_equal(np.asarray(shardc.trace(function, x).partition().compile("cpu")(x)), 12 * x)


def test_numbers_of_an_argument_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="not known yet"):
        shardc.trace(lambda x: x if x[0] > np.zeros((), like=x) else -x, np.ones(3))
