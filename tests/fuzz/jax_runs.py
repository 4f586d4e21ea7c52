"""A random JAX program through shardc and through ``jax.jit``, and whether the results are the same."""

from __future__ import annotations

import functools
import traceback
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax_drawer import draw_case
from jax_terms import EXACT_LIMITS, Case, Context, Value, run
from jax_transforms import TABLE

import shardc
from shardc.hlo.errors import ShardcError

__all__ = ["arguments", "case_of", "failure"]


#: How programs that are not called by `shardc.jit` are partitioned, by seed: layouts of any plan give the same results.
PLANS: tuple[Mapping[str, Any], ...] = (
    {},
    {"plan": "global"},
    {"machine": "h100-dgx"},
    {"machine": "h100-dgx", "plan": "global"},
)


def device_mesh(sizes: Any) -> Any:
    """JAX's mesh over the devices of this process, of which there have to be enough."""
    count = int(np.prod(list(sizes.values())))
    devices = np.array(jax.devices()[:count]).reshape(tuple(sizes.values()))
    return jax.sharding.Mesh(devices, tuple(sizes), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))


def case_of(seed: int) -> Case:
    return draw_case(TABLE, seed, device_mesh)


def arguments(case: Case) -> list[np.ndarray]:
    """Exact ones are small whole numbers, the others are normal."""
    rng = np.random.default_rng(case.seed)
    return [_argument(rng, v) for v in case.body.inputs]


def _argument(rng: np.random.Generator, v: Value) -> np.ndarray:
    dtype = jax.numpy.dtype(v.dtype)
    if v.dtype == "bool":
        return np.asarray(rng.integers(0, 2, v.shape), bool)
    if not v.exact:
        return np.asarray(np.clip(rng.standard_normal(v.shape), -4, 4)).astype(dtype)
    low = 0 if v.dtype.startswith("u") else -4
    whole = rng.integers(low, 5, v.shape)
    if v.dtype.startswith("complex"):
        return np.asarray(whole + 1j * rng.integers(-4, 5, v.shape)).astype(dtype)
    return np.asarray(whole).astype(dtype)


def theirs(case: Case, args: list[np.ndarray], widen: bool = False) -> list[np.ndarray]:
    """What JAX makes of it, on one device but for shard_map."""
    context = Context(device_mesh(case.mesh), widen, whole=True)
    if widen:
        args = [a.astype(context.dtype(v.dtype)) for a, v in zip(args, case.body.inputs, strict=True)]
    with jax.enable_x64(case.x64 or widen):
        return [np.asarray(x) for x in jax.jit(functools.partial(run, TABLE, case.body, context))(*args)]


def ours(case: Case, args: list[np.ndarray]) -> list[np.ndarray]:
    mesh = shardc.Mesh(dict(case.mesh))
    context = Context(mesh.to_jax())

    def function(*arrays: Any) -> Any:
        return run(TABLE, case.body, context, *arrays)

    specs = tuple(None if s is None else shardc.P(*s) for s in case.specs)
    with jax.enable_x64(case.x64):
        if case.jit:
            results = shardc.jit(function, mesh=mesh, in_shardings=specs)(*args)
        else:
            with jax.sharding.use_abstract_mesh(mesh.to_jax()):
                program = shardc.from_jax(function, *args)
            given = {f"arrays[{i}]": s for i, s in enumerate(specs) if s is not None}
            taken = program.module.argument_names  # not those that jit drops
            program = program.annotate({n: s for n, s in given.items() if n in taken}, mesh=mesh)
            options = PLANS[case.seed % len(PLANS)]
            results = program.propagate().partition(**options).compile("cpu")(*args)
        return [np.asarray(shardc.gather(x)) for x in results]


def failure(case: Case) -> str:
    """In one line what goes wrong; empty when nothing does, or when JAX itself refuses the program."""
    args = arguments(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = theirs(case, args)
        except Exception:
            return ""
        try:
            got = ours(case, args)
        except ShardcError as error:
            return f"refused: {type(error).__name__}: {str(error).splitlines()[0]}"
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return f"crashed: {type(error).__name__} in {frame.name}: {str(error).partition(chr(10))[0][:80]}"
        for k, (g, w) in enumerate(zip(got, want, strict=True)):
            if g.dtype != w.dtype or g.shape != w.shape:
                return f"result {k} is {g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}"
        wrong = [k for k, (g, w) in enumerate(zip(got, want, strict=True)) if not _agree(g, w)]
        return _beyond_rounding(case, args, got, want, wrong) if wrong else ""


def _beyond_rounding(case: Case, args: list[np.ndarray], got: Any, want: Any, wrong: list[int]) -> str:
    """Whether the difference is more than rounding explains: 20 times JAX's own error against doubles, and what changes
    in the last bit of the arguments do to the results."""
    floats = [i for i, a in enumerate(args) if a.dtype.kind not in "biu" and a.size and not case.body.inputs[i].exact]
    try:
        truth = theirs(case, args, widen=True)
        moved = list(args)
        for i in floats:
            with np.errstate(all="ignore"):
                moved[i] = (args[i] * (1 + 4 * _eps(args[i].dtype))).astype(args[i].dtype)
        shaken = theirs(case, moved)
    except Exception:
        truth, shaken = want, want
    for k in wrong:
        g, w, t, s = (np.asarray(x[k], np.complex128) for x in (got, want, truth, shaken))
        if not np.all(np.isfinite(w)) or not np.all(np.isfinite(t)):
            if np.all(np.isfinite(w)) != np.all(np.isfinite(t)):
                continue
            both = np.isfinite(w) & np.isfinite(g)
            if not np.array_equal(np.isfinite(w), np.isfinite(g)):
                return f"result {k} differs where it is not finite"
            g, w, t, s = (np.where(both, x, 0) for x in (g, w, t, s))
        scale = max(np.abs(t).max(initial=0), 1e-30)
        allowed = max(
            64 * _eps(want[k].dtype) * scale, 20 * np.abs(w - t).max(initial=0), 20 * np.abs(w - s).max(initial=0)
        )
        worst = np.abs(g - t).max(initial=0)
        if worst > allowed:
            return f"result {k} ({want[k].dtype}) differs"
    return ""


def _agree(g: np.ndarray, w: np.ndarray) -> bool:
    if str(w.dtype) not in EXACT_LIMITS:
        return bool(np.array_equal(g, w))
    g, w = (np.asarray(x, np.complex128) for x in (g, w))
    return bool(np.array_equal(g, w, equal_nan=True))


def _eps(dtype: Any) -> float:
    return float(jax.numpy.finfo(dtype).eps) if str(dtype) in EXACT_LIMITS else 0.0
