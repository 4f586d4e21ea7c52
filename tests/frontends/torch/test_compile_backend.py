"""``torch.compile`` with our backend: forward and backward, names, values that stay, errors with the user's line."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from models import Counting, Transformer, seeded, worst  # noqa: E402
from torch import nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.nn import functional  # noqa: E402

import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402
from shardc.frontends.torch.element_types import as_tensor  # noqa: E402
from shardc.hlo.errors import InputError  # noqa: E402
from shardc.torch.compile_backend import registered_backend  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.arange(24).reshape(4, 6) % 32
SPECS = {
    "*.?_proj.weight": P("model", None),
    "*.up_proj.weight": P("model", None),
    "*.down_proj.weight": P(None, "model"),
    "ids": P("data"),
}
MESH = {"data": 2, "model": 2}


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def laid_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the parameters whose values were laid out, as it happens."""
    from shardc.frontends.torch.dynamo import resident_values

    names: list[str] = []
    own = resident_values.as_numpy

    def noted(tensor: Any, name: str) -> Any:
        names.append(name)
        return own(tensor, name)

    monkeypatch.setattr(resident_values, "as_numpy", noted)
    return names


@pytest.mark.parametrize("mesh", [None, MESH])
def test_forward(mesh: Any) -> None:
    model = seeded(Transformer)
    compiled = torch.compile(model, backend=shardc.torch.backend(mesh, SPECS if mesh else None), fullgraph=True)
    with torch.no_grad():
        assert worst(compiled(IDS), model(IDS)) < 1e-6


def test_by_its_name_with_options() -> None:
    model = seeded(Transformer)
    compiled = torch.compile(model, backend="shardc", options={"mesh": MESH, "annotations": SPECS})
    with torch.no_grad():
        assert worst(compiled(IDS), model(IDS)) < 1e-6
    assert "shardc" in torch._dynamo.list_backends()


@pytest.mark.parametrize("mesh", [None, MESH])
def test_three_steps_of_an_optimizer(mesh: Any) -> None:
    model = seeded(Transformer)
    other = copy.deepcopy(model)
    compiled = torch.compile(model, backend=shardc.torch.backend(mesh, SPECS if mesh else None))
    ours, theirs = (torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (model, other))
    for _ in range(3):
        losses = []
        for run, optimizer in ((compiled, ours), (other, theirs)):
            optimizer.zero_grad()
            loss = functional.cross_entropy(run(IDS).flatten(0, 1), IDS.roll(1).flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters() if run is compiled else other.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
        assert worst(*losses) < 1e-6
    for name, value in other.named_parameters():
        assert worst(model.get_parameter(name), value) < 1e-4, name


def test_parameters_stay_until_they_are_written_to(laid_out: list[str]) -> None:
    model = nn.Linear(4, 4)
    compiled = torch.compile(model, backend=shardc.torch.backend({"x": 2}, {"weight": P("x")}))
    x = torch.ones(2, 4)
    with torch.no_grad():
        compiled(x)
        assert sorted(laid_out) == ["bias", "weight"]
        compiled(x)
        assert len(laid_out) == 2
        model.weight.fill_(1.0)
        model.bias.copy_(torch.full((4,), 0.5))
        assert torch.equal(compiled(x), torch.full((2, 4), 4.5))
        assert len(laid_out) == 4
        model.weight = nn.Parameter(torch.zeros(4, 4))
        assert torch.equal(compiled(x), torch.full((2, 4), 0.5))


def test_the_backward_takes_what_the_forward_kept(laid_out: list[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    compiled = torch.compile(
        model, backend=shardc.torch.backend({"x": 2}, {"0.weight": P("x", None), "2.weight": P(None, "x")})
    )
    x = torch.randn(3, 4)
    loss = compiled(x).square().sum()
    loss.backward(retain_graph=True)
    first = {n: p.grad.clone() for n, p in model.named_parameters()}
    loss.backward()
    assert sorted(laid_out) == ["0.bias", "0.weight", "2.bias", "2.weight", "args[0]"]
    model.zero_grad()
    model(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert worst(first[name], parameter.grad) < 1e-6


@pytest.mark.parametrize("mesh", [None, {"x": 2}])
def test_what_is_kept_keeps_no_batch_and_no_old_parameter_alive(mesh: Any) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    compiled = torch.compile(module, backend=shardc.torch.backend(mesh))
    storages = []
    for _ in range(3):
        x = torch.randn(6, 4)
        storages.append(StorageWeakRef(x.untyped_storage()))
        compiled(x).sum().backward()
        storages.append(StorageWeakRef(module[0].weight.untyped_storage()))
        module[0].weight.data = module[0].weight.data * 2
    del x
    gc.collect()
    assert all(storage.expired() for storage in storages)
    x = torch.randn(6, 4)
    assert worst(compiled(x), module(x)) < 1e-6


def test_gradients_of_split_rows_are_the_memory_of_their_shards() -> None:
    mesh = shardc.Mesh({"x": 2})
    rows = shardc.array(np.arange(64.0, dtype=np.float32).reshape(16, 4), (mesh, P("x"))) + 1
    columns = rows.reshard(P(None, "x"))
    tensor = as_tensor(torch, rows)
    assert tensor.data_ptr() == rows.addressable_shards[0].data.ctypes.data
    assert torch.equal(tensor, as_tensor(torch, columns)) and tensor[15, 3] == 64


def test_another_batch_makes_another_graph() -> None:
    model = seeded(Transformer)
    compiled = torch.compile(model, backend="shardc")
    with torch.no_grad():
        for batch in (4, 2, 3):
            assert worst(compiled(IDS[:batch]), model(IDS[:batch])) < 1e-6


def test_what_a_module_changes_is_written_back() -> None:
    module = seeded(Counting)
    other = copy.deepcopy(module)
    compiled = torch.compile(module, backend="shardc")
    args, kwargs = (torch.randn(6, 4), 2.0), {"extra": {"a": torch.ones(2), "b": torch.ones(2)}}
    for _ in range(2):
        want, got = other(*args, **kwargs), compiled(*args, **kwargs)
        assert worst(got["out"][0], want["out"][0]) < 1e-6 and got["sum"][1] == 3
    for name, value in other.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value, rtol=1e-6, atol=1e-7)


def test_functions_name_two_modules_apart() -> None:
    left, right = nn.Linear(4, 4), nn.Linear(4, 4)

    def both(x: Any) -> Any:
        return left(x) + right(x)

    given = {"left.weight": P("x", None), "right.weight": P(None, "x")}
    compiled = torch.compile(both, backend=shardc.torch.backend({"x": 2}, given))
    x = torch.randn(2, 4)
    assert worst(compiled(x), both(x)) < 1e-6


class Breaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.up(x)
        torch._dynamo.graph_break()  # the break
        return self.down(x)


def test_a_graph_break_is_named_with_its_line() -> None:
    model = Breaking()
    lines = Path(__file__).read_text().splitlines()
    line = next(k for k, text in enumerate(lines, 1) if text.endswith("# the break"))
    with pytest.raises(Exception, match="breaks the graph") as caught:
        torch.compile(model, backend="shardc")(torch.ones(2, 4))
    assert f"test_compile_backend.py:{line}" in str(caught.value)
    allowed = shardc.torch.backend({"x": 2}, {"up.weight": P("x"), "down.weight": P(None, "x")}, graph_breaks=True)
    torch._dynamo.reset()
    x = torch.randn(2, 4)
    assert worst(torch.compile(model, backend=allowed)(x), model(x)) < 1e-6


def test_an_operator_that_is_not_known_is_named_with_its_line() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    with pytest.raises(Exception, match="draws random numbers"):
        torch.compile(model, backend="shardc")(torch.ones(2, 4))


def test_names_that_no_input_has_are_refused() -> None:
    with pytest.raises(Exception, match="wieght"):
        torch.compile(nn.Linear(4, 4), backend=shardc.torch.backend({"x": 2}, {"wieght": P("x")}))(torch.ones(2, 4))


def test_options_that_are_not_known_are_refused() -> None:
    with pytest.raises(InputError, match="mash"):
        registered_backend(None, (), options={"mash": {"x": 2}})


@pytest.mark.mpi
def test_on_four_ranks() -> None:
    worker = Path(__file__).with_name("compile_worker.py")
    command = [sys.executable, "-m", "shardc", "mpiexec", "-n", "4", sys.executable, str(worker)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    errors = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("error ")]
    assert done.returncode == 0 and len(errors) == 4, done.stderr[-2000:]
    assert max(errors) < 1e-6


def test_a_python_number_that_changes_is_an_argument() -> None:
    compiled = torch.compile(lambda a, s: (a * s + s) ** 2, backend=shardc.torch.backend({"d": 2}, {"a": P("d")}))
    x = torch.arange(8.0).reshape(4, 2).requires_grad_()
    for s in (2.0, 3.0, 0.5, 7.25):
        torch.testing.assert_close(compiled(x, s), (x * s + s) ** 2)
        torch.testing.assert_close(torch.autograd.grad(compiled(x, s).sum(), x)[0], 2 * (x * s + s) * s)


def test_the_last_program_of_a_function_warns(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(nn.Linear(4, 2), backend="shardc")
    with torch._dynamo.config.patch(recompile_limit=3), caplog.at_level("WARNING", "shardc"):
        for rows in (2, 3):
            compiled(torch.ones(rows, 4))
        assert not caplog.records
        compiled(torch.ones(4, 4))
        assert "recompile_limit" in caplog.text and "program 3 of one function" in caplog.text


@pytest.mark.parametrize("given", ["layer", "shape"])
def test_what_pytorch_would_run_itself_is_an_error_of_a_full_graph(given: str) -> None:
    module = nn.Sequential(nn.GRU(4, 3)) if given == "layer" else nn.Linear(4, 3)
    compiled = torch.compile(module, backend="shardc", fullgraph=True)
    with torch._dynamo.config.patch(recompile_limit=2), pytest.raises(Exception, match=r"fullgraph|RNN, GRU"):
        for rows in (2, 3, 4):
            compiled(torch.ones(rows, 4))
