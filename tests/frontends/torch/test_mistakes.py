"""Mistakes of people who use PyTorch: each error says what is wrong, where, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.tensor import Partial, Shard  # noqa: E402

import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.ones(4, 16)


class Deciding(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x  # a condition


class Factors(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.ldl_factor(x[:, :4])  # no row


def _linear() -> Any:
    return nn.Linear(16, 8)


def _program() -> Any:
    return shardc.from_torch(_linear(), (X,))


class Nested(nn.Module):
    def forward(self, batch: Any) -> Any:
        return batch["x"] + batch["y"][0] * batch["y"][1]


def _nested() -> Any:
    return shardc.from_torch(Nested(), ({"x": X, "y": [X, X]},))


def _meta() -> Any:
    return nn.Linear(16, 8, device="meta")


def _dynamic() -> Any:
    shapes = ({0: torch.export.Dim("batch")},)
    return torch.export.export(_linear(), (X,), dynamic_shapes=shapes)


def _loss(module: Any, x: Any) -> Any:
    return module(x).sum()


def _step(module: Any) -> Any:
    return shardc.torch.train_step(module, _loss, torch.optim.SGD(module.parameters()), (X,))


MISTAKES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "no such name": (lambda: _program().annotate({"wieght": P("x")}, mesh={"x": 2}), "'wieght'", "did you mean weight"),
    "brackets": (lambda: _program().annotate({"[bw]*": P("x")}, mesh={"x": 2}), "[bw]*", "brackets match literally"),
    "no mesh": (lambda: _program().annotate({"weight": P("x")}), "need a mesh", 'mesh={"data": 2'),
    "no such axis": (lambda: _program().annotate({"weight": P("y")}, mesh={"x": 2}), "argument weight", "its axes are"),
    "partial": (lambda: shardc.torch.spec_of_placements((Shard(0), Partial()), ("x", "y"), 2), "Partial", "fix"),
    "complex32": (lambda: shardc.from_torch(nn.Identity(), (X.to(torch.complex32),)), "complex32", "complex64"),
    "dynamic shapes": (lambda: shardc.from_torch(_dynamic()), "dynamic dimensions", "without dynamic_shapes"),
    "two devices": (lambda: shardc.from_torch(_meta(), (X,)), "on meta", "to one device"),
    "step on two devices": (lambda: _step(_meta()), "an argument on cpu", "to one device"),
    "no values": (lambda: shardc.from_torch(_meta(), (X.to("meta"),)).compile()(X), "meta device", "load the weights"),
    "another batch": (lambda: _program().compile()(X[:3]), "float32[3, 16]", "another program"),
    "no arguments": (lambda: shardc.from_torch(_linear()), "missing a required argument: 'input'", "(x,)"),
    "too many for the module": (lambda: shardc.from_torch(_linear(), (X, X)), "too many positional", "(x,)"),
    "too few for the loss": (
        lambda: shardc.torch.train_step(_linear(), lambda m, x, y: 0, torch.optim.SGD(_linear().parameters()), (X,)),
        "the loss cannot be called with these arguments: missing a required argument: 'y'",
        "for each parameter of the loss",
    ),
    "a call without arguments": (lambda: _program().compile()(*()), "input is missing", "pass input as"),
    "one argument too many": (lambda: _program().compile()(X, 3), "argument 1 is not known", "another program"),
    "other keys": (
        lambda: _nested().compile()({"x": X, "z": [X]}),
        "batch['y'][0], batch['y'][1] are missing",
        "batch",
    ),
    "unknown keys": (lambda: _nested().compile()({"x": X, "z": [X]}), "batch['z'][0] is not known", "batch"),
    "a tuple for a list": (lambda: _nested().compile()({"x": X, "y": (X, X)}), "of another type or order", "batch"),
    "a step without its batch": (lambda: _step(_linear()).compile()(*()), "x is missing", "pass x as"),
    "a condition": (lambda: shardc.from_torch(Deciding(), (X,)), "{file}:{condition}, Deciding", "torch.where"),
    "an operator": (
        lambda: shardc.from_torch(nn.Sequential(Factors()), (X,)),
        "{file}:{row}, module 0",
        "other operators",
    ),
    "a tensor for a tuple": (lambda: shardc.from_torch(_linear(), X), "one tensor", "(x,)"),
    "a file": (lambda: shardc.from_torch("model.pt2"), "from a str", "torch.export.load"),
    "from_jax": (lambda: shardc.from_jax(_linear(), X), "belongs to PyTorch", "shardc.from_torch"),
    "auto of a step": (lambda: shardc.auto(_step(_linear()), machine="h100-dgx", devices=2), "TrainStep", ".program"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str) -> None:
    make, what, fix = MISTAKES[mistake]
    lines = Path(__file__).read_text().splitlines()
    condition, row = (next(k for k, t in enumerate(lines, 1) if t.endswith(m)) for m in ("# a condition", "# no row"))
    with pytest.raises(shardc.ShardcError) as caught:
        make()
    told = str(caught.value)
    assert what.format(file=__file__, condition=condition, row=row) in told and "\n  fix: " in told
    assert fix in told.partition("\n  fix: ")[2] or fix == "fix"


def test_saved_files(tmp_path: Path) -> None:
    module = _linear()
    shardc.save(module, tmp_path / "model.hlo", X)
    assert shardc.load(tmp_path / "model.hlo").arg_names == ("weight", "bias", "input")
    shardc.save(_step(module), tmp_path / "step.hlo")
    assert {"weight", "optimizer.lr", "x"} <= set(shardc.load(tmp_path / "step.hlo").arg_names)
    with pytest.raises(shardc.ShardcError, match=r"\*\.hlo"):
        shardc.save(module, tmp_path / "model.mlir", X)
    torch.export.save(torch.export.export(module, (X,)), tmp_path / "model.pt2")
    with pytest.raises(shardc.ShardcError, match=r"torch\.export\.load"):
        shardc.load(tmp_path / "model.pt2")


def _random_loss(module: Any, x: Any) -> Any:  # the loss
    return module(x).sum()


def test_layers_of_pytorch_have_the_line_of_the_loss() -> None:
    module = nn.Sequential(nn.Linear(16, 8), nn.Sequential(nn.Dropout()))
    with pytest.raises(shardc.ShardcError, match="draws random numbers") as caught:
        shardc.torch.train_step(module, _random_loss, torch.optim.SGD(module.parameters()), (X,))
    line = next(k for k, t in enumerate(Path(__file__).read_text().splitlines(), 1) if t.endswith("# the loss"))
    assert f"where: {__file__}:{line}, module 1.0" in str(caught.value)
    step = _step(_linear())
    sources = {i.metadata.source for i in step.program.module.instructions() if i.metadata and i.metadata.source}
    assert all(s.startswith(__file__) for s in sources)
