"""Samples of PyTorch's operator database: exported, made a program of ours, computed, and held against PyTorch.

As a script: judges the operators of the numbers in its arguments and prints lines of JSON: ``{"starts": [number,
title]}`` before and ``{"number": ..., "verdicts": [...]}`` after each. ``record`` writes a file of calls of core ATen
operators, and ``calls`` judges the operators in it. An operator that takes more than `LIMIT` seconds of the processor
ends the script: so the verdict does not depend on what else the machine does.
"""

from __future__ import annotations

import json
import pickle
import random
import resource
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.torch_core_calls import core_operators, recorded
from shardc import from_torch
from shardc.frontends.torch.element_types import ExportedArray, as_numpy
from shardc.frontends.torch.frontend import program_from_torch
from shardc.hlo.errors import ShardcError
from shardc.hlo.evaluate import evaluate

__all__ = ["SAMPLES", "Verdict", "compiled", "database", "evaluated", "judge", "judge_call", "title"]

#: Element types that are asked of an operator, and how many of its samples.
SAMPLES = {"float32": 3, "int64": 1, "bool": 1, "complex64": 1}
#: Runs of PyTorch with different seeds: results that differ are random, and compared as samples of a distribution.
DRAWS = 4
#: Seconds of the processor for one operator.
LIMIT = 300

Compute = Callable[[torch.nn.Module, Sequence[Any]], Any]


@dataclass(frozen=True)
class Verdict:
    """``kind`` is agrees, refused, differs, or skipped where PyTorch itself has no result; ``why`` says more."""

    operator: str
    dtype: str
    number: int
    kind: str
    why: str = ""


class Called(torch.nn.Module):
    """A function of tensors, which may lie in lists, and of plain values."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, name: str = "") -> None:
        super().__init__()
        self.function, self.title = function, name
        leaves, self.spec = torch.utils._pytree.tree_flatten((args, kwargs))
        self.values = [None if isinstance(v, torch.Tensor) else v for v in leaves]
        self.places = [k for k, v in enumerate(leaves) if isinstance(v, torch.Tensor)]
        self.tensors = tuple(leaves[k].detach().clone() for k in self.places)

    def forward(self, *tensors: Any) -> Any:
        leaves = list(self.values)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self.spec)
        made = self.function(*args, **kwargs)
        return [r for r in torch.utils._pytree.tree_leaves(made) if r is not None]


def database() -> list[Any]:
    """The operators, in PyTorch's order."""
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def title(operator: Any) -> str:
    return f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else str(operator.name)


def evaluated(module: torch.nn.Module, tensors: Sequence[Any]) -> list[Any]:
    """What the NumPy meaning of the program gives."""
    program = program_from_torch(module, tuple(tensors), seed=0)
    signature = program.signature
    states = [s.tensor for s in signature.states]
    flat = [*states, *signature.tensors(signature.leaves(tuple(tensors), {}))]
    results = evaluate(program.module, [as_numpy(flat[k], "") for k in signature.kept])
    return [v if k is None else _tensor(results[k]) for k, v in signature.outputs]


def _tensor(array: Any) -> Any:
    return torch.from_dlpack(ExportedArray(array.copy()))


def compiled(module: torch.nn.Module, tensors: Sequence[Any]) -> list[Any]:
    """What the compiled program gives."""
    return list(from_torch(module, tuple(tensors), seed=0).compile()(*tensors))


def judge(operator: Any, compute: Compute, samples: dict[str, int] | None = None) -> Iterator[Verdict]:
    """One operator's first samples, in each element type that it has."""
    for name, count in (samples or SAMPLES).items():
        dtype = getattr(torch, name)
        if dtype not in operator.supported_dtypes("cpu") or (name != "float32" and _left_out(name, operator)):
            continue
        torch.manual_seed(0)
        try:
            inputs = list(islice(operator.sample_inputs("cpu", dtype, requires_grad=False), count))
        except Exception as e:
            yield Verdict(title(operator), name, 0, "skipped", _told(e))
            continue
        for number, sample in enumerate(inputs):
            call = Called(operator.get_op(), (sample.input, *sample.args), sample.kwargs, operator.name)
            kind, why = _judged(call, compute, sample.output_process_fn_grad)
            yield Verdict(title(operator), name, number, kind, why)


def _left_out(name: str, operator: Any) -> bool:
    """Complex numbers where there are real ones too, and equal elements where their order is open."""
    real = torch.float32 in operator.supported_dtypes("cpu")
    return real and (name == "complex64" or operator.name in ("sort", "argsort", "topk", "kthvalue"))


def judge_call(target: str, args: Any, kwargs: Any, number: int, compute: Compute) -> Verdict:
    """One call of an ATen operator."""
    packet, overload = target.removeprefix("aten.").rsplit(".", 1)
    function = getattr(getattr(torch.ops.aten, packet), overload)
    kind, why = _judged(Called(function, args, kwargs, target), compute, lambda x: x)
    return Verdict(target, "", number, kind, why)


def _judged(call: Called, compute: Compute, shown: Callable[[Any], Any]) -> tuple[str, str]:
    try:
        wants = [_seeded(call, seed) for seed in range(DRAWS)]
    except Exception as e:
        return "skipped", _told(e)
    try:
        got = compute(call, call.tensors)
    except ShardcError as e:
        return "refused", " ".join(str(e).split())[:300]
    except Exception as e:
        return "differs", f"no error of ours: {_told(e)}"
    try:
        if any(not _same(w, wants[0]) for w in wants[1:]) and "empty" not in call.title:
            _distributed(*(_draws(call, r) for r in (got, *wants)))
        else:
            _close(call, _shown(shown, got), _shown(shown, wants[0]))
    except Exception as e:
        if _as_in_64_bits(call, got, shown):
            return "agrees", "with PyTorch's result of 64 bits, and its result of 32 bits does not"
        return "differs", " ".join(str(e).split())[:200]
    return "agrees", ""


def _as_in_64_bits(call: Called, got: list[Any], shown: Callable[[Any], Any]) -> bool:
    """Whether results of 32 bits are what PyTorch gives in 64 bits, rounded: then its own of 32 bits are wrong."""
    if not any(t.dtype == torch.float32 for t in call.tensors):
        return False
    wide = [t.double() if t.dtype == torch.float32 else t.clone() for t in call.tensors]
    try:
        exact = [w.to(g.dtype) for w, g in zip(call(*wide), got, strict=True)]
        _close(call, _shown(shown, got), _shown(shown, exact))
    except Exception:
        return False
    return True


def _seeded(call: Called, seed: int) -> Any:
    """PyTorch's results; the database's operators would begin with a seed of their own."""
    torch.manual_seed(seed)
    with mock.patch.object(torch, "manual_seed"):
        return call(*[t.clone() for t in call.tensors])


def _same(some: Any, others: Any) -> bool:
    """Whether two runs of PyTorch gave the same: else it drew random numbers."""
    try:
        torch.testing.assert_close(some, others, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return False
    return True


def _draws(call: Called, results: list[Any]) -> list[Any]:
    """Results as numbers that are drawn each by itself: means of channels where whole channels are dropped."""
    if not call.title.endswith(("dropout2d", "dropout3d", "feature_alpha_dropout")):
        return results
    return [r.flatten(2).mean(2) if r.ndim > 2 else r for r in results]


def _distributed(got: list[Any], *wants: list[Any]) -> None:
    """Random results have the shapes and types of PyTorch's, and pass for a sample of the same distribution: by the
    test of Kolmogorov and Smirnov, at 1 in 1000."""
    for mine, *theirs in zip(got, *wants, strict=True):
        if (mine.shape, mine.dtype) != (theirs[0].shape, theirs[0].dtype):
            raise AssertionError(f"{mine.dtype}{list(mine.shape)} instead of {theirs[0].dtype}{list(theirs[0].shape)}")
        a, b = _parts(mine), torch.cat([_parts(t) for t in theirs])
        if not a.numel():
            continue
        at = torch.cat([a, b]).sort().values
        shares = [torch.searchsorted(v.sort().values, at, right=True) / v.numel() for v in (a, b)]
        apart = (shares[0] - shares[1]).abs().max().item()
        if apart > 1.95 * (1 / a.numel() + 1 / b.numel()) ** 0.5:
            raise AssertionError(f"distributions are {apart:.3f} apart, for {a.numel()} numbers")


def _parts(tensor: Any) -> Any:
    """All numbers of a tensor, real and imaginary ones."""
    parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return parts.double().nan_to_num(nan=-1e300).reshape(-1)


def _shown(shown: Callable[[Any], Any], results: list[Any]) -> Any:
    """What of the results is determined: eigenvectors, for example, have no sign."""
    try:
        return shown(results[0] if len(results) == 1 else tuple(results))
    except Exception:
        return results


def _close(call: Called, got: Any, want: Any) -> None:
    if "empty" in call.title:  # no values to compare
        told = [[(r.shape, r.dtype) for r in torch.utils._pytree.tree_leaves(v)] for v in (got, want)]
        if told[0] != told[1]:
            raise AssertionError(f"{told[0]} instead of {told[1]}")
        return
    if call.title in ("aten.sort.default", "aten.topk.default"):  # the order of equal elements is open
        args, options = torch.utils._pytree.tree_unflatten(call.values, call.spec)
        at = 1 if call.title.startswith("aten.sort") else 2
        dim = args[at] if len(args) > at else options.get("dim", -1)
        got, want = (got[0], call.tensors[0].gather(dim, got[1])), (want[0], want[0])
    torch.testing.assert_close(got, want, equal_nan=True)


def _told(e: Exception) -> str:
    return f"{type(e).__name__}: {next(iter(str(e).strip().splitlines()), '')}"[:300]


def _record(file: Path) -> None:
    """Write the calls of core operators, those without one too."""
    calls = recorded(database(), lambda o: print(json.dumps({"records": title(o)}), flush=True)).listed()
    file.write_bytes(pickle.dumps({name: calls.get(name, []) for name in core_operators()}))


def _start(number: int, name: str) -> None:
    """Tell that an operator starts, and give it its time."""
    print(json.dumps({"starts": number, "title": name}), flush=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + LIMIT, most))


def main(mode: str, file: str, *numbers: str) -> None:
    """``record FILE``, ``calls FILE NUMBERS`` or ``samples evaluate|compile NUMBERS``."""
    warnings.simplefilter("ignore")
    random.seed(0)
    wanted = [int(n) for n in numbers]
    if mode == "record":
        _record(Path(file))
        return
    if mode == "samples":
        operators = database()
        compute = compiled if file == "compile" else evaluated
        for number in wanted:
            _start(number, title(operators[number]))
            verdicts = [asdict(v) for v in judge(operators[number], compute)]
            print(json.dumps({"number": number, "verdicts": verdicts}), flush=True)
        return
    calls = pickle.loads(Path(file).read_bytes())  # our own file, of a minute ago
    targets = sorted(calls)
    for number in wanted:
        target = targets[number]
        _start(number, target)
        verdicts = [asdict(judge_call(target, *call, k, evaluated)) for k, call in enumerate(calls[target])]
        print(json.dumps({"number": number, "verdicts": verdicts}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
