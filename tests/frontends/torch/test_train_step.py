"""`shardc.torch.train_step`: steps beside PyTorch's own, hyperparameters, layouts, and state that comes and goes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from models import Transformer, seeded, worst  # noqa: E402
from torch.nn import functional  # noqa: E402

import shardc  # noqa: E402
import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402
from shardc.hlo.errors import AnnotationError, InputError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.arange(24).reshape(4, 6) % 32
TARGETS = (IDS + 1) % 32
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, maximize=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.8, 0.99)),
}
SPLIT = {
    "*.?_proj.weight": P("model", None),
    "*.up_proj.weight": P("model", None),
    "*.down_proj.weight": P(None, "model"),
    "ids": P("data"),
    "targets": P("data"),
}


def loss(model: Any, ids: Any, targets: Any) -> Any:
    return functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def eager(
    model: Any, optimizer: Any, steps: int, batch: tuple[Any, ...] = (IDS, TARGETS), max_norm: float | None = None
) -> list[Any]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        losses.append(value.detach())
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_torch(name: str) -> None:
    model = seeded(Transformer).double()
    other = copy.deepcopy(model)
    step = shardc.torch.train_step(model, loss, OPTIMIZERS[name](model.parameters()), (IDS, TARGETS))
    training = step.annotate(SPLIT, mesh={"data": 2, "model": 2}).compile()
    optimizer = OPTIMIZERS[name](other.parameters())
    got = [training(IDS, TARGETS) for _ in range(3)]
    for a, b in zip(got, eager(other, optimizer, 3), strict=True):
        assert worst(a, b) < 1e-12
    for key, value in training.state_dict().items():
        assert worst(value, other.state_dict()[key]) < 1e-9
    mine, theirs = training.optimizer_state_dict(), optimizer.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    for number, entry in theirs["state"].items():
        for slot, value in entry.items():
            if value is not None:
                torch.testing.assert_close(mine["state"][number][slot], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("max_norm", [0.0, 0.1, 100.0])
def test_gradients_are_clipped_as_by_torch(max_norm: float) -> None:
    model = seeded(Transformer).double()
    model.embed.weight.requires_grad_(False)
    other = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5, momentum=0.9) for m in (model, other)]
    step = shardc.torch.train_step(model, loss, optimizers[0], (IDS, TARGETS), clip_grad_norm=max_norm)
    training = step.annotate(SPLIT, mesh={"data": 2, "model": 2}).compile()
    for wanted in eager(other, optimizers[1], 3, max_norm=max_norm):
        assert worst(training(IDS, TARGETS), wanted) < 1e-12
    for key, value in training.state_dict().items():
        assert worst(value, other.state_dict()[key]) < 1e-9


def test_the_norm_of_split_gradients_is_one_scalar_all_reduce() -> None:
    model = seeded(Transformer)
    every = {n: P("data") for n in model.state_dict()}  # head.weight is tied to the embedding

    def sent(**options: Any) -> list[dict[str, Any]]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = shardc.torch.train_step(model, loss, optimizer, (IDS, TARGETS), **options)
        found: list[dict[str, Any]] = step.annotate(every, mesh={"data": 2}).partition().report()["collectives"]
        return found

    more, few = sent(clip_grad_norm=1.0), sent()
    assert sum(c["wire_bytes"] for c in more) <= sum(c["wire_bytes"] for c in few) + 8
    assert len(more) <= len(few) + 1


def test_16_bit_gradients_are_clipped() -> None:
    model = seeded(Transformer).bfloat16()
    other = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (model, other)]
    step = shardc.torch.train_step(model, loss, optimizers[0], (IDS, TARGETS), clip_grad_norm=0.1)
    got = [step.compile()(IDS, TARGETS) for _ in range(2)]
    for a, b in zip(got, eager(other, optimizers[1], 2, max_norm=0.1), strict=True):
        assert a.dtype == torch.bfloat16
        assert worst(a.float(), b.float()) < 0.05


@pytest.mark.parametrize("max_norm", [-1.0, float("nan")])
def test_a_norm_below_zero_is_refused(max_norm: float) -> None:
    model = seeded(Transformer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InputError, match="clip_grad_norm is"):
        shardc.torch.train_step(model, loss, optimizer, (IDS, TARGETS), clip_grad_norm=max_norm)


def test_state_stays_where_it_lies() -> None:
    model = seeded(Transformer)
    step = shardc.torch.train_step(model, loss, OPTIMIZERS["adamw"](model.parameters()), (IDS, TARGETS))
    training = step.annotate(SPLIT, mesh={"data": 2, "model": 2}).compile()
    before = {n: a.sharding for n, a in training.arrays.items()}
    assert str(before["optimizer.exp_avg.layers.0.up_proj.weight"]) == str(before["layers.0.up_proj.weight"])
    training(IDS, TARGETS)
    assert {n: a.sharding for n, a in training.arrays.items()} == before
    moved = step.annotate(SPLIT, mesh={"data": 2, "model": 2}).partition().report()["collectives"]
    assert {c["op"] for c in moved} <= {"all-reduce", "reduce-scatter", "all-gather"}


def test_schedules_change_the_rate() -> None:
    model = seeded(Transformer)
    other = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in optimizers]
    training = shardc.torch.train_step(model, loss, optimizers[0], (IDS, TARGETS)).compile()
    for _ in range(3):
        got, want = training(IDS, TARGETS), eager(other, optimizers[1], 1)[0]
        assert worst(got, want) < 1e-6
        for schedule in schedules:
            schedule.step()


def test_groups_frozen_parameters_and_no_grad() -> None:
    class Parts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.free, self.unused = (torch.nn.Linear(4, 4) for _ in range(3))
            self.norm = torch.nn.BatchNorm1d(4)
            self.frozen.requires_grad_(False)

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                scale = self.free(x).mean()
            return self.norm(self.free(self.frozen(x))) * scale

    def both(model: Any, batch: dict[str, Any]) -> Any:
        out = model(batch["x"])
        return (out - batch["y"]).square().mean(), {"out": out, "n": 3}

    def make(model: Any) -> Any:
        groups = [{"params": model.free.parameters(), "lr": 0.1}, {"params": model.norm.parameters(), "lr": 0.5}]
        return torch.optim.SGD(groups, momentum=0.9)

    torch.manual_seed(0)
    model = Parts()
    other, batch = copy.deepcopy(model), {"x": torch.randn(6, 4), "y": torch.randn(6, 4)}
    step = shardc.torch.train_step(model, both, make(model), (batch,))
    assert "optimizer.1.lr" in step.program.arg_names and "batch['x']" in step.program.arg_names
    training, optimizer = step.compile(), make(other)
    for _ in range(3):
        optimizer.zero_grad()
        value, rest = both(other, batch)
        value.backward()
        optimizer.step()
        got, also = training(batch)
        assert worst(got, value) < 1e-6 and worst(also["out"], rest["out"]) < 1e-5 and also["n"] == 3
    for key, value in other.state_dict().items():
        torch.testing.assert_close(training.state_dict()[key], value, rtol=1e-5, atol=1e-6)
    training.update_module()
    torch.testing.assert_close(model.norm.running_mean, other.norm.running_mean, rtol=1e-5, atol=1e-6)


def test_state_goes_out_and_comes_back(tmp_path: Path) -> None:
    model = seeded(Transformer)
    step = shardc.torch.train_step(model, loss, OPTIMIZERS["adam"](model.parameters()), (IDS, TARGETS))
    training = step.annotate(SPLIT, mesh={"data": 2, "model": 2}).compile()
    for _ in range(2):
        training(IDS, TARGETS)
    training.save(tmp_path)
    states = training.state_dict(), training.optimizer_state_dict()
    want = training(IDS, TARGETS)
    again = step.annotate({"ids": P("x"), "*.up_proj.weight": P("x")}, mesh={"x": 2}).compile()
    assert again.load(tmp_path) == 2
    assert worst(again(IDS, TARGETS), want) < 1e-6
    last = step.compile()
    last.load_state_dict(states[0])
    last.load_optimizer_state_dict(states[1])
    assert worst(last(IDS, TARGETS), want) < 1e-6
    other = seeded(Transformer)
    other.load_state_dict(states[0])
    optimizer = OPTIMIZERS["adam"](other.parameters())
    optimizer.load_state_dict(states[1])
    assert worst(eager(other, optimizer, 1)[0], want) < 1e-6


def test_modules_without_memory_take_their_state_from_files(tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch").save_file
    model = seeded(Transformer)
    save({n: t.clone() for n, t in model.state_dict().items()}, tmp_path / "model.safetensors")
    with torch.device("meta"):
        hollow = Transformer()
    step = shardc.torch.train_step(
        hollow, loss, torch.optim.SGD(hollow.parameters(), lr=0.1), (IDS.to("meta"), TARGETS.to("meta"))
    )
    training = step.annotate(SPLIT, mesh={"data": 2, "model": 2}).compile()
    training.load_safetensors(tmp_path)
    assert worst(training(IDS, TARGETS), loss(model, IDS, TARGETS)) < 1e-6


def test_a_tied_tensor_has_each_of_its_names() -> None:
    model = seeded(Transformer)
    step = shardc.torch.train_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), (IDS, TARGETS))
    mesh = {"data": 2, "model": 2}
    (own,) = {step.graph.states["head.weight"], "head.weight"} - {"head.weight"}
    texts = [str(step.annotate({n: P(None, "model")}, mesh).program) for n in (own, "head.weight")]
    assert texts[0] == texts[1]
    with pytest.raises(AnnotationError, match=f"head.weight is the tensor {own}"):
        step.annotate({own: P("data"), "head.weight": P("model")}, mesh)


def test_what_is_refused() -> None:
    model = seeded(Transformer)
    with pytest.raises(shardc.ShardcError, match=r"the optimizer torch\.optim\S+RMSprop"):
        shardc.torch.train_step(model, loss, torch.optim.RMSprop(model.parameters()), (IDS, TARGETS))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(shardc.ShardcError, match=r"the loss is of shape \[4, 6, 32\]"):
        shardc.torch.train_step(model, lambda m, x: m(x), sgd, (IDS,))
    with pytest.raises(shardc.ShardcError, match="none of the parameters"):
        shardc.torch.train_step(model, loss, torch.optim.SGD(seeded(Transformer).parameters()), (IDS, TARGETS))


def test_backward_operators_have_the_users_lines() -> None:
    model = seeded(Transformer)
    step = shardc.torch.train_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), (IDS, TARGETS))
    places = {i.metadata.source for i in step.program.module.instructions() if i.opcode == "dot" and i.metadata}
    assert places and all("torch/nn" not in p for p in places)
