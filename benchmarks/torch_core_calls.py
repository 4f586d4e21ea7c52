"""Calls of PyTorch's core ATen operators: those that the samples of its operator database consist of, and some of ours.

Each sample runs in eager mode, forward and backward, under a mode that PyTorch asks for every operator. Operators
outside of the core set become others by PyTorch's decompositions; of those inside, a few calls are kept, of different
types, ranks and options.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["CALLS", "Call", "Calls", "core_operators", "own_calls", "recorded"]

#: How many calls of one operator are kept, and how many samples of each element type run.
CALLS, SAMPLES = 6, {"float32": 12, "int64": 3, "bool": 2, "complex64": 2}
#: Tensors above this size are not kept.
LARGEST = 100_000

Call = tuple[tuple[Any, ...], dict[str, Any]]


def core_operators() -> list[str]:
    """The overloads that PyTorch tags as core, by name."""
    names = [n.removeprefix("aten::") for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")]
    found = (_overload(*n.partition(".")[::2]) for n in names)
    return sorted(str(o) for o in found if o is not None and torch.Tag.core in o.tags)


def _overload(packet: str, overload: str) -> Any:
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


@dataclass
class Calls:
    """The calls that were kept, by the operator's name: one of each kind."""

    found: dict[str, dict[Any, Call]] = field(default_factory=dict)

    def keep(self, operator: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Keep a call, with tensors of its own, where it is of another kind than those before."""
        leaves = torch.utils._pytree.tree_leaves((args, dict(kwargs)))
        if any(isinstance(v, torch.Tensor) and v.numel() > LARGEST for v in leaves):
            return
        kept = self.found.setdefault(str(operator), {})
        kind = (tuple(map(_kind, leaves)), tuple(sorted(kwargs)))
        if len(kept) < CALLS and kind not in kept:
            kept[kind] = torch.utils._pytree.tree_map(_own, (tuple(args), dict(kwargs)))

    def add(self, other: Mapping[str, Iterable[Call]]) -> None:
        """Keep calls that were made elsewhere."""
        for name, calls in other.items():
            for args, kwargs in calls:
                self.keep(name, args, kwargs)

    def listed(self) -> dict[str, list[Call]]:
        """The calls of each operator, by name."""
        return {name: list(self.found[name].values()) for name in sorted(self.found)}


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.dim(), value.numel() == 0
    return value if isinstance(value, (bool, str, type(None))) else type(value).__name__


def _own(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


class _Recorder(TorchDispatchMode):
    """Runs operators by their decompositions down to the core set, and keeps the calls of it."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls, self._table = calls, core_aten_decompositions()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        core = _functional(operator)
        if torch.Tag.core in core.tags:
            self._calls.keep(core, args, kwargs)
            return operator(*args, **kwargs)
        for smaller in (self._table.get(operator), operator.decompose):
            if smaller is not None:
                with self:
                    made = smaller(*args, **kwargs)
                if made is not NotImplemented:
                    return made
        return operator(*args, **kwargs)


def _functional(operator: Any) -> Any:
    """The operator that changes nothing in place, for one that does (``add_``)."""
    packet, overload = operator.overloadpacket.__name__, operator._overloadname
    if not packet.endswith("_") or packet.startswith("__"):
        return operator
    plain = getattr(torch.ops.aten, packet.removesuffix("_"), None)
    return getattr(plain, overload, operator)


def record(operator: Any, calls: Calls) -> None:
    """Keep the core calls of an operator of the database: of its samples and, in floats, of their gradients."""
    for name, count in SAMPLES.items():
        dtype = getattr(torch, name)
        if dtype not in operator.supported_dtypes("cpu"):
            continue
        backward = name == "float32" and operator.supports_autograd
        torch.manual_seed(0)
        with contextlib.suppress(Exception):  # what PyTorch itself cannot run has no calls
            for sample in islice(operator.sample_inputs("cpu", dtype, requires_grad=backward), count):
                with contextlib.suppress(Exception), _Recorder(calls):
                    made = operator.get_op()(sample.input, *sample.args, **sample.kwargs)
                    if backward:
                        _differentiate(made)


def _differentiate(made: Any) -> None:
    results = [t for t in torch.utils._pytree.tree_leaves(made) if isinstance(t, torch.Tensor) and t.requires_grad]
    if results:
        torch.autograd.backward(results, [torch.ones_like(t) for t in results])


def own_calls() -> dict[str, list[Call]]:
    """Calls of operators that no sample consists of, and those of random numbers with enough of them to compare."""
    torch.manual_seed(0)
    x, y, whole = torch.randn(3, 4), torch.randn(3, 4), torch.arange(12).reshape(3, 4) - 5
    line, plane, ones = torch.randn(2, 3, 8), torch.randn(2, 3, 5, 6), torch.ones(100, 100)
    return {
        "aten.adaptive_avg_pool1d.default": [((line, [3]), {}), ((line, [8]), {})],
        "aten.atan2.out": [((x, y), {"out": torch.zeros(3, 4)})],
        "aten.avg_pool1d.default": [((line, [3], [2], [1]), {}), ((line, [3], [2], [0], True, False), {})],
        **{f"aten.bitwise_{name}.Scalar": [((whole, 6), {}), ((whole > 0, True), {})] for name in ("and", "or", "xor")},
        "aten.div.Scalar_mode": [((v, 3), {"rounding_mode": m}) for v in (x, whole) for m in ("floor", "trunc")],
        "aten.fmod.Scalar": [((x, 0.7), {}), ((whole, -3), {})],
        "aten.native_dropout.default": [((ones, 0.25, True), {}), ((ones, 0.25, False), {}), ((ones, 1.0, True), {})],
        "aten.rand.default": [(([100, 100],), {})],
        "aten.randn.default": [(([100, 100],), {})],
        "aten.randperm.default": [((1000,), {})],
        "aten.resize_.default": [((x, [2, 3]), {}), ((x, [4, 3]), {})],
        "aten.sym_is_contiguous.default": [((x,), {})],
        "aten.sym_numel.default": [((x,), {})],
        "aten.sym_size.int": [((x, 1), {})],
        "aten.sym_storage_offset.default": [((x,), {})],
        "aten.sym_stride.int": [((x, 0), {})],
        "aten.upsample_bilinear2d.vec": [((plane, [9, 10], False, None), {}), ((plane, None, True, [2.0, 1.5]), {})],
        "aten.upsample_nearest2d.vec": [((plane, [9, 10], None), {}), ((plane, None, [2.0, 1.5]), {})],
        "aten.var.dim": [((x, [1], True, False), {}), ((x, [0, 1], False, True), {})],
    }


def recorded(operators: Iterable[Any], told: Callable[[Any], None] = lambda _: None) -> Calls:
    """The calls of all ``operators`` of the database, after ours."""
    calls = Calls()
    calls.add(own_calls())
    for operator in operators:
        told(operator)
        record(operator, calls)
    return calls
