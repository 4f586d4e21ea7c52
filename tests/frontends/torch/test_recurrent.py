"""Recurrent layers beside PyTorch: dropout between layers, and training of an LSTM that oneDNN would compute."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402
from shardc.hlo.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
torch.manual_seed(0)
X = torch.randn(5, 4, 3)


def last_layer_repeats(width: int = 6, bidirectional: bool = False, **options: Any) -> Any:
    """A network of two layers, the last of which gives what it is given, and so shows what was dropped."""
    torch.manual_seed(1)
    net = nn.RNN(3, width, 2, nonlinearity="relu", bidirectional=bidirectional, **options)
    inputs = 2 * width if bidirectional else width
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "l1" in name:
                parameter.zero_()
                if name.startswith("weight_ih"):
                    parameter.copy_(torch.eye(width, inputs))
    return net


@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bidirectional": True}, {"bias": False}])
def test_elements_are_dropped_between_layers(options: dict[str, Any]) -> None:
    net = last_layer_repeats(dropout=0.25, **options)
    whole = copy.deepcopy(net).eval()(X)[0]
    program = shardc.from_torch(net, (X,), seed=3).annotate({"input": P(None, "d")}, mesh={"d": 2})
    call = program.compile()
    found = torch.stack([call(X)[0] for _ in range(20)])
    dropped = (found == 0) & (whole != 0)
    kept = torch.where(dropped, 0, whole / 0.75)
    torch.testing.assert_close(found, kept)
    assert 0.2 < dropped.sum() / (20 * (whole != 0).sum()) < 0.3


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_all_is_dropped(kind: Any) -> None:
    torch.manual_seed(0)
    net = kind(3, 6, 3, dropout=1.0)
    wanted, state = net(X)
    found, last = shardc.from_torch(net, (X,), seed=0).compile()(X)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(last, state)
    with pytest.raises(UnsupportedError, match="draws random numbers"):
        shardc.from_torch(kind(3, 6, 2, dropout=0.5), (X,))
    net.eval()
    torch.testing.assert_close(shardc.from_torch(net, (X,)).compile()(X)[0], net(X)[0])


def loss(model: Any, x: Any) -> Any:
    return model(x)[0].square().mean()


@pytest.mark.parametrize("options", [{}, {"num_layers": 3, "dropout": 1.0}, {"bidirectional": True, "bias": False}])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_steps_are_those_of_pytorch(kind: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    net = kind(3, 6, **options)
    other = copy.deepcopy(net)
    step = shardc.torch.train_step(net, loss, torch.optim.SGD(net.parameters(), lr=0.5), (X,), seed=0)
    training = step.annotate({"x": P(None, "d")}, mesh={"d": 2}).compile()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.5)
    for _ in range(3):
        wanted = loss(other, X)
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(training(X), wanted)
    assert torch.backends.mkldnn.enabled


def test_programs_are_made_without_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        shardc.from_torch(nn.LSTM(3, 6), (X,))


def test_torch_compile_is_told_to_capture_recurrent_layers() -> None:
    torch._dynamo.reset()
    net = nn.Sequential(nn.LSTM(3, 6, 2))
    wanted = net(X)[0]
    programs = []
    own = shardc.torch.backend({"d": 2}, {"0.weight_hh_l0": P("d")})

    def counted(graph: Any, inputs: Any) -> Any:
        programs.append(graph)
        return own(graph, inputs)

    with torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(torch.compile(net, backend=counted)(X)[0], wanted)
    assert len(programs) == 1
    torch._dynamo.reset()
