"""The core set of ATen operators beside `shardc.from_torch`: each overload is called by itself.

``python -m benchmarks.torch_core FOLDER`` records the calls that PyTorch's operator database comes to, adds samples
for overloads that it does not reach, judges all in child processes, and writes the table in docs/status.md. What lies
in FOLDER already is not recorded again, and what agrees there is not judged again.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import insert
from benchmarks.torch_operators import CHUNK, LIMIT, OPERATORS, ROOT, collected, kind, run, section

__all__ = ["core_overloads", "own_samples"]

Call = tuple[tuple[Any, ...], dict[str, Any]]


def core_overloads() -> list[str]:
    """The overloads that PyTorch tags as core, by name, those among them that nobody has called yet."""
    import torch

    found = []
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        known = getattr(torch.ops.aten, packet, None) if space == "aten" else None
        operator = getattr(known, overload or "default", None)
        if operator is not None and torch.Tag.core in operator.tags:
            found.append(str(operator))
    return sorted(set(found))


def own_samples() -> dict[str, Call]:
    """A call of each overload that the operator database's samples do not come to."""
    import torch

    torch.manual_seed(0)
    by_name = {**_BY_NAME, "atan2.out": {"out": torch.empty(3, 4)}}
    samples = {**_elementwise(torch), **_layers(torch)}
    return {f"aten.{name}": (args, by_name.get(name, {})) for name, args in samples.items()}


def _elementwise(torch: Any) -> dict[str, tuple[Any, ...]]:
    x, whole = torch.randn(3, 4), torch.arange(12).reshape(3, 4)
    return {
        "atan2.out": (x, x + 1),
        "bitwise_and.Scalar": (whole, 5),
        "bitwise_or.Scalar": (whole, 5),
        "bitwise_xor.Scalar": (whole, 5),
        "div.Scalar_mode": (x, 0.3),
        "fill.Scalar": (x, 2.5),
        "fmod.Scalar": (x, 0.3),
        "prod.dim_int": (x, 1),
        "scatter.value": (x, 1, whole % 4, 2.0),
        "select_scatter.default": (x, torch.randn(4), 0, 1),
        "squeeze.dim": (torch.randn(3, 1, 4), 1),
        "var.dim": (x, [1]),
        "randperm.default": (8,),
        "native_dropout.default": (x, 0.5, True),
        "sym_numel.default": (x,),
        "sym_size.int": (x, 1),
        "sym_stride.int": (x, 0),
        "sym_storage_offset.default": (x,),
        "nonzero.default": (x > 0,),
        "sym_is_contiguous.default": (x,),
        "resize_.default": (x, [2, 6]),
        "_local_scalar_dense.default": (x[0, 0],),
    }


def _layers(torch: Any) -> dict[str, tuple[Any, ...]]:
    """Normalisations, pooling, padding, and what belongs to the backward of layers."""
    image, rows, ones = torch.randn(2, 4, 6, 6), torch.randn(5, 4), torch.ones(4)
    half = torch.randn(2, 4, 3, 3)
    mean, spread = rows.mean(1, True), (rows.var(1, keepdim=True, correction=0) + 1e-5).rsqrt()
    grouped, by_group = torch.randn(2, 4), torch.rand(2, 2) + 0.5
    kernel = torch.randn(3, 4, 3, 3)
    return {
        "_adaptive_avg_pool2d_backward.default": (half, image),
        "adaptive_avg_pool1d.default": (rows[None], [2]),
        "avg_pool1d.default": (rows[None], [2]),
        "_embedding_bag.default": (rows, torch.tensor([0, 1, 2, 4, 1]), torch.tensor([0, 2])),
        "_fft_c2r.default": (torch.fft.rfft(torch.randn(3, 8)), [1], 0, 8),
        "_native_batch_norm_legit.default": (rows, ones, ones, torch.zeros(4), ones.clone(), True, 0.1, 1e-5),
        "_native_batch_norm_legit.no_stats": (rows, ones, ones, True, 0.1, 1e-5),
        "_native_batch_norm_legit_no_training.default": (rows, ones, ones, torch.zeros(4), ones, 0.1, 1e-5),
        "avg_pool2d_backward.default": (half, image, [2, 2], [2, 2], [0, 0], False, True, None),
        "col2im.default": (torch.randn(2, 16, 9), [6, 6], [2, 2], [1, 1], [0, 0], [2, 2]),
        "convolution_backward.default": (
            torch.randn(2, 3, 4, 4), image, kernel, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True],
        ),
        "embedding_dense_backward.default": (rows, torch.tensor([0, 1, 2, 1, 0]), 6, -1, False),
        "native_group_norm_backward.default": (
            image, image + 1, grouped[:, :2], by_group, ones, 2, 4, 36, 2, [True, True, True],
        ),
        "native_layer_norm_backward.default": (rows, rows + 1, [4], mean, spread, ones, ones, [True, True, True]),
        "reflection_pad1d.default": (rows, [1, 2]),
        "reflection_pad2d.default": (image, [1, 2, 0, 3]),
        "reflection_pad3d.default": (image, [1, 2, 0, 3, 1, 1]),
        "replication_pad2d.default": (image, [1, 2, 0, 3]),
        "replication_pad3d.default": (image, [1, 2, 0, 3, 1, 1]),
        "upsample_nearest2d.vec": (image, [12, 9], None),
    }  # fmt: skip


#: Arguments that a call passes by name.
_BY_NAME: Mapping[str, dict[str, Any]] = {"div.Scalar_mode": {"rounding_mode": "floor"}}


def _recorded(folder: Path) -> dict[str, list[Any]]:
    """The calls of core overloads in the operator database's samples, and our own for the rest."""
    calls: dict[str, list[Any]] = {}
    for start in range(0, OPERATORS, CHUNK):
        file = folder / f"calls-{start}.pkl"
        if not file.exists():
            numbers = map(str, range(start, min(start + CHUNK, OPERATORS)))
            command = [sys.executable, "-m", "benchmarks.torch_operators_worker", "record", str(file), *numbers]
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as child:
                try:
                    child.wait(LIMIT)
                except subprocess.TimeoutExpired:
                    child.kill()
        if file.exists():
            for target, found in pickle.loads(file.read_bytes()).items():  # our own file
                calls[target] = (calls.get(target, []) + found)[:2]
    for target, call in own_samples().items():
        calls.setdefault(target, [call])
    return {target: calls[target] for target in core_overloads() if target in calls}


def main(files: Sequence[str]) -> None:
    folder = Path(files[0])
    folder.mkdir(parents=True, exist_ok=True)
    calls = _recorded(folder)
    (folder / "core.pkl").write_bytes(pickle.dumps(calls))
    said = folder / "core.jsonl"
    lines = said.read_text().splitlines() if said.exists() else []
    agreed = {target for target, verdicts in collected(lines).items() if kind(verdicts) == "agrees"}
    left = [n for n, target in enumerate(sorted(calls)) if target not in agreed]
    lines += run("calls", str(folder / "core.pkl"), left)
    said.write_text("".join(f"{line}\n" for line in lines))
    found = collected(lines)
    for target in core_overloads():
        found.setdefault(target, [{"kind": "refused", "why": "not judged"}])
    print(*insert(ROOT / "docs" / "status.md", {"torch-core": section(found)}), "written")
    for target, said in found.items():
        for one in said:
            if one["kind"] != "agrees":
                print(json.dumps({target: one}))


if __name__ == "__main__":
    main(sys.argv[1:])
