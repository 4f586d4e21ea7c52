"""Random numbers that do not depend on the mesh, in traced functions and outside."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import shardc
import shardc.numpy as np
from shardc import Mesh, P
from shardc.hlo.errors import InputError
from shardc.hlo.numpy.random_bits import philox

MESHES = (Mesh({"x": 1}), Mesh({"x": 2, "y": 2}), Mesh({"x": 3}))


def words(*text: str) -> list[int]:
    return [int(t, 16) for t in text]


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        (words("0", "0", "0", "0"), words("0", "0"), words("6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8")),
        (words(*["ffffffff"] * 4), words(*["ffffffff"] * 2), words("408f276d", "41c83b0e", "a20bc7c6", "6d5451fd")),
        (
            words("243f6a88", "85a308d3", "13198a2e", "03707344"),
            words("a4093822", "299f31d0"),
            words("d16cfe09", "94fdcceb", "5001e420", "24126ea1"),
        ),
    ],
)
def test_philox_answers_as_published(counter: list[int], key: list[int], wanted: list[int]) -> None:
    """The known answers of Random123 for philox4x32-10."""
    found = philox(tuple(map(numpy.uint64, counter)), tuple(map(numpy.uint64, key)))  # type: ignore[arg-type]
    assert [int(f) for f in found] == wanted


DRAWS = {
    "random": lambda r: r.random((40, 37)),
    "float32": lambda r: r.random(64, dtype=numpy.float32),
    "normal": lambda r: r.normal(2.0, 3.0, (40, 37)),
    "standard normal": lambda r: r.standard_normal(100, dtype="float32"),
    "uniform": lambda r: r.uniform(-1, 1, 70),
    "exponential": lambda r: r.exponential(2.0, 70),
    "lognormal": lambda r: r.lognormal(0.0, 0.5, 70),
    "integers": lambda r: r.integers(-3, 7, (40, 5), endpoint=True),
    "permutation": lambda r: r.permutation(50),
    "choice": lambda r: r.choice(100, 20, replace=False),
    "weighted": lambda r: r.choice(4, (40, 3), p=[0.1, 0.2, 0, 0.7]),
    "weighted, without repetition": lambda r: r.choice(numpy.arange(9.0), 4, False, numpy.arange(9) / 36),
    "one number": lambda r: r.normal(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_on_every_mesh(name: str) -> None:
    found = []
    for mesh in MESHES:
        with np.use_mesh(mesh):
            rng = np.random.default_rng(7)
            rng.random(3)
            found.append(numpy.asarray(DRAWS[name](rng)))
    for other in found[1:]:
        numpy.testing.assert_array_equal(found[0], other)


def test_distributions() -> None:
    """Moments of a million draws, within five standard errors; integers by a chi-squared statistic."""
    count = 1_000_000
    rng = np.random.default_rng(11)
    for draw, mean, deviation in ((rng.random, 0.5, 12**-0.5), (rng.standard_normal, 0, 1), (rng.exponential, 1, 1)):
        x = numpy.asarray(draw(size=count))
        assert abs(x.mean() - mean) < 5 * deviation / count**0.5
        assert abs(x.std() - deviation) < 0.01
    normal = numpy.sort(numpy.asarray(rng.normal(size=count)))
    quantiles = normal[[int(q * count) for q in (0.0228, 0.1587, 0.5, 0.8413, 0.9772)]]
    numpy.testing.assert_allclose(quantiles, [-2, -1, 0, 1, 2], atol=0.02)
    counts = numpy.bincount(numpy.asarray(rng.integers(10, size=count)), minlength=10)
    assert ((counts - count / 10) ** 2 / (count / 10)).sum() < 35
    assert sorted(numpy.asarray(rng.permutation(1000))) == list(range(1000))


def test_weighted_choices() -> None:
    """Counts by chi-squared statistics (3 degrees of freedom); pairs without repetition beside the product rule."""
    weights = numpy.array([0.1, 0.2, 0.3, 0.4])
    rng = np.random.default_rng(13)
    wanted = 100_000 * weights
    counts = numpy.bincount(numpy.asarray(rng.choice(4, 100_000, p=weights)), minlength=4)
    assert ((counts - wanted) ** 2 / wanted).sum() < 25

    pairs = np.jit(lambda rng, p: rng.choice(4, 2, replace=False, p=p))
    drawn = numpy.array([numpy.asarray(pairs(rng, weights)) for _ in range(1500)])
    assert (drawn[:, 0] != drawn[:, 1]).all()
    first = 1500 * weights
    second = first @ (weights / (1 - weights[:, None]) * (1 - numpy.eye(4)))
    for found, wanted in ((drawn[:, 0], first), (drawn[:, 1], second)):
        assert ((numpy.bincount(found, minlength=4) - wanted) ** 2 / wanted).sum() < 25


@pytest.mark.parametrize(
    ("size", "replace", "p", "text"),
    [
        (4, False, [0.1, 0.2, 0, 0.7], "Fewer non-zero entries"),
        (2, True, [0.5, 0.5], "must have same size"),
        (2, True, [0.5] * 4, "do not sum to 1"),
        (2, True, [-0.5, 0.5, 0.5, 0.5], "not non-negative"),
        (5, False, None, "larger sample than population"),
    ],
)
def test_what_is_no_choice(size: int, replace: bool, p: Any, text: str) -> None:
    for rng in (np.random.default_rng(1), numpy.random.default_rng(1)):
        with pytest.raises(ValueError, match=f"(?i){text}"):
            rng.choice(4, size, replace, p)


def test_draws_follow_one_another() -> None:
    rng, again = np.random.default_rng(5), np.random.default_rng(5)
    first, second = rng.random(20), rng.random(20)
    assert not numpy.array_equal(first, second)
    assert numpy.array_equal(again.random(20), first)
    one, two = np.random.default_rng(5).spawn(2)
    assert not numpy.array_equal(one.random(20), two.random(20))
    assert np.random.default_rng(rng) is rng


def noisy(u: Any, rng: Any) -> Any:
    """Draws twice."""
    return u + rng.normal(size=u.shape), rng.integers(100, size=u.shape)


@pytest.mark.parametrize("mesh", MESHES)
def test_a_stream_goes_on_from_call_to_call(mesh: Mesh) -> None:
    u = numpy.zeros((6, 6))
    rng, outside = np.random.default_rng(3), np.random.default_rng(3)
    step = shardc.trace(noisy, u, rng, mesh=mesh, in_shardings=(P("x"), None)).compile()
    for _ in range(3):
        for found, wanted in zip(step(u, rng), noisy(u, outside), strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(found), numpy.asarray(wanted))


def test_a_stream_of_the_functions_own_is_computed() -> None:
    """A fixed seed inside of the function means the same numbers in every call, as in NumPy; no table is stored."""

    def f(u: Any) -> Any:
        return u + np.random.default_rng(3).random(u.shape)

    program = shardc.trace(f, numpy.zeros(1000))
    assert max(i.shape.size for i in program.module.entry if i.opcode == "constant") < 10
    wanted = np.random.default_rng(3).random(1000)
    numpy.testing.assert_array_equal(numpy.asarray(program.compile()(numpy.zeros(1000))), numpy.asarray(wanted))


def test_no_stream_is_a_constant_unnoticed() -> None:
    rng = np.random.default_rng(3)

    def closure(u: Any) -> Any:
        return u + rng.random(u.shape)

    def unseeded(u: Any) -> Any:
        return u + np.random.default_rng().random(u.shape)

    with pytest.raises(InputError, match="same every time") as e:
        shardc.trace(closure, numpy.zeros(4))
    assert "test_random_streams.py" in str(e.value)
    with pytest.raises(InputError, match="two traces of the function differ"):
        shardc.trace(unseeded, numpy.zeros(4))
