"""A training's state from elsewhere: buffers that no state has, tensors with two names, other tensors, mistakes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402
from shardc.hlo.errors import InputError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.arange(24.0).reshape(6, 4).sin()


class Scaled(nn.Module):
    """Has a buffer that is not persistent, one that is, and a weight by two names."""

    def __init__(self, scale: float = 3.0) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((4,), scale), persistent=False)
        self.register_buffer("shift", torch.ones(4))
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x * self.scale).tanh()) + self.shift


def loss(model: Any, x: Any) -> Any:
    return model(x).square().mean()


def training_of(module: Any) -> Any:
    step = shardc.torch.train_step(module, loss, torch.optim.AdamW(module.parameters(), lr=0.1), (X,))
    return step.annotate({"first.weight": P("d"), "scale": P("d")}, mesh={"d": 2}).compile()


def pair() -> tuple[Any, Any]:
    """A module to train and another of other values, but for the buffer that no state has."""
    torch.manual_seed(0)
    other = Scaled()
    other.shift.mul_(2)
    return Scaled(), other


def test_states_have_no_buffers_that_are_not_persistent() -> None:
    module, other = pair()
    training = training_of(module)
    assert set(training.state_dict()) == set(module.state_dict())
    training.load_state_dict(training.state_dict())
    torch.testing.assert_close(training(X), loss(module, X))
    training.load_state_dict(other.state_dict())
    torch.testing.assert_close(training(X), loss(other, X))
    training.load_state_dict({**other.state_dict(), "scale": torch.zeros(4)})
    torch.testing.assert_close(training(X), loss(other, X))


@pytest.mark.parametrize("left_out", ["first.weight", "last.weight"])
def test_files_have_a_weight_by_one_of_its_names(left_out: str, tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch").save_file
    module, other = pair()
    training = training_of(module)
    state = {name: t.clone() for name, t in other.state_dict().items() if name != left_out}
    save(state, tmp_path / "model.safetensors")
    training.load_safetensors(tmp_path)
    torch.testing.assert_close(training(X), loss(other, X))


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch").save_file
    module, other = pair()
    training = training_of(module)
    save({"first.bias": torch.ones(4), "first.weight": torch.ones(4, 4)}, tmp_path / "few.safetensors")
    with pytest.raises(InputError, match="the files contain no tensor shift"):
        training.load_safetensors(tmp_path / "few.safetensors")
    state = {name: t.clone().bfloat16() for name, t in other.state_dict().items() if name != "last.weight"}
    save(state, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"bfloat16\[4,? ?4?\], but the step takes float32"):
        training.load_safetensors(tmp_path / "other.safetensors")


def test_models_of_transformers_are_restored(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        use_cache=False, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    ids = torch.arange(40).reshape(4, 10)
    model, other = transformers.LlamaForCausalLM(config), transformers.LlamaForCausalLM(config)

    def own_loss(model: Any, ids: Any) -> Any:
        return model(input_ids=ids, labels=ids).loss

    optimizer = torch.optim.AdamW(model.parameters())
    training = shardc.torch.train_step(model, own_loss, optimizer, (ids,)).compile()
    other.save_pretrained(tmp_path)
    training.load_safetensors(tmp_path)
    torch.testing.assert_close(training(ids), own_loss(other, ids), rtol=1e-5, atol=1e-6)
    training.load_state_dict(model.state_dict())
    torch.testing.assert_close(training(ids), own_loss(model, ids), rtol=1e-5, atol=1e-6)


def test_a_step_begins_with_the_tensors_that_the_module_has_then() -> None:
    module, other = pair()
    optimizer = torch.optim.AdamW(module.parameters())
    training = shardc.torch.train_step(module, loss, optimizer, (X,)).compile()
    module.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
    torch.testing.assert_close(training(X), loss(other, X))
    training.update_module()
    torch.testing.assert_close(module.first.weight, training.state_dict()["first.weight"])
    torch.testing.assert_close(training(X), loss(module, X))


def test_buffers_without_values_are_named() -> None:
    with torch.device("meta"):
        module = Scaled()
    training = training_of_meta(module)
    training.load_state_dict(pair()[1].state_dict())
    with pytest.raises(InputError, match="not persistent") as e:
        training(X)
    assert "where: scale" in str(e.value)


def training_of_meta(module: Any) -> Any:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return shardc.torch.train_step(module, loss, optimizer, (X.to("meta"),)).compile()


@pytest.mark.parametrize("state", [{}, {"param_groups": []}, None])
def test_an_optimizers_state_is_a_dict_with_state(state: Any) -> None:
    with pytest.raises(InputError, match="a dict with state and param_groups"):
        training_of(pair()[0]).load_optimizer_state_dict(state)


def test_states_of_no_tensors() -> None:
    training = training_of(pair()[0])
    with pytest.raises(InputError, match="is not a tensor"):
        training.load_state_dict({**training.state_dict(), "shift": 3})


def test_a_scheduler_knows_of_the_steps(recwarn: pytest.WarningsRecorder) -> None:
    module, x = torch.nn.Linear(2, 1), torch.ones(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    training = shardc.torch.train_step(module, lambda m, x: m(x).sum(), optimizer, (x,)).compile()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    training(x)
    scheduler.step()
    assert not [w for w in recwarn if "lr_scheduler" in str(w.message)]
