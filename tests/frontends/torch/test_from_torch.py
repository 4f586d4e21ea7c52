"""`shardc.from_torch`: names, aliases, pytrees, places and values, beside PyTorch itself."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from models import Counting, Transformer, seeded, worst  # noqa: E402

import shardc  # noqa: E402
import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.arange(24).reshape(4, 6) % 32


@pytest.fixture(scope="module")
def transformer() -> Any:
    return seeded(Transformer)


def test_arguments_are_named_as_in_state_dict(transformer: Any) -> None:
    program = shardc.from_torch(transformer, (IDS,))
    tied = {"head.weight"}  # the same tensor as embed.weight, which comes first
    assert list(program.arg_names) == [*(n for n in transformer.state_dict() if n not in tied), "ids"]


@pytest.mark.parametrize("mesh", [None, {"data": 2, "model": 2}])
def test_values_are_those_of_the_module(transformer: Any, mesh: dict[str, int] | None) -> None:
    program = shardc.from_torch(transformer, (IDS,))
    if mesh:
        columns, rows = P("model", None), P(None, "model")
        program = program.annotate(
            {"*.?_proj.weight": columns, "*.up_proj.weight": columns, "*.down_proj.weight": rows, "ids": P("data")},
            mesh=mesh,
        )  # fmt: skip
    got = program.compile()(IDS)
    assert isinstance(got, torch.Tensor) and got.dtype == torch.float32
    assert worst(got, transformer(IDS)) < 1e-6


def test_collectives_name_the_users_lines(transformer: Any) -> None:
    program = shardc.from_torch(transformer, (IDS,)).annotate(
        {"*.up_proj.weight": P("model", None), "*.down_proj.weight": P(None, "model")}, mesh={"model": 4}
    )
    told = "\n".join(program.partition().explain())
    lines = Path(__file__).with_name("models.py").read_text().splitlines()
    line = next(k for k, text in enumerate(lines, 1) if "self.down_proj(functional" in text)
    assert f"models.py:{line}" in told
    assert any("layers/1/down_proj" in i.metadata.op_name for i in program.module.instructions() if i.metadata)


def test_what_the_module_changes_is_an_alias_and_is_written_back() -> None:
    module = seeded(Counting)
    args, kwargs = (torch.randn(6, 4), 2.0), {"extra": {"a": torch.ones(2), "b": torch.ones(2)}}
    program = shardc.from_torch(module, args, kwargs)
    assert program.arg_names[-3:] == ("x", "extra['a']", "extra['b']")
    changed = {program.arg_names[a.parameter] for a in program.module.aliases}
    assert changed == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "calls"}
    other = copy.deepcopy(module)
    for compiled in (program.compile(), program.annotate({"x": P("data")}, mesh={"data": 2}).compile()):
        for _ in range(2):
            want, got = other(*args, **kwargs), compiled(*args, **kwargs)
            assert worst(got["out"][0], want["out"][0]) < 1e-6
            assert got["out"][1] is None and got["sum"][1] == 3 and torch.equal(got["sum"][0], want["sum"][0])
        for name, value in other.state_dict().items():
            torch.testing.assert_close(module.state_dict()[name], value, rtol=1e-6, atol=1e-7)
    assert int(module.calls) == 4


def test_parameters_stay_laid_out_until_they_are_written_to() -> None:
    module = torch.nn.Linear(4, 4)
    compiled = shardc.from_torch(module, (torch.ones(2, 4),)).annotate({"weight": P("x")}, mesh={"x": 2}).compile()
    compiled(torch.ones(2, 4))
    held = dict(compiled._signature.held)
    compiled(torch.ones(2, 4))
    assert compiled._signature.held == held
    with torch.no_grad():
        module.weight.fill_(1.0)
        module.bias.fill_(0.5)
    assert torch.equal(compiled(torch.ones(2, 4)), torch.full((2, 4), 4.5))


def test_results_share_the_memory_of_the_shard() -> None:
    compiled = shardc.from_torch(torch.nn.Identity(), (torch.ones(3),)).compile()
    result = compiled(torch.ones(3))
    array = compiled.run([np.ones(3, np.float32)])[0]
    assert torch.from_dlpack(array).data_ptr() == array.addressable_shards[0].data.ctypes.data
    assert torch.equal(result, torch.ones(3))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64"])
def test_element_types(dtype: str) -> None:
    kind = getattr(torch, dtype)

    class Doubled(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.logical_not() if x.dtype == torch.bool else x + x

    x = torch.tensor([0, 1, 2, 100]).to(kind)
    got = shardc.from_torch(Doubled(), (x,)).compile()(x)
    assert got.dtype == kind and torch.equal(got, Doubled()(x))


@pytest.mark.filterwarnings("error")
def test_reading_a_module_warns_of_nothing() -> None:
    assert shardc.from_torch(torch.nn.Linear(4, 4), (torch.ones(2, 4),)).arg_names == ("weight", "bias", "input")


def test_strided_inputs() -> None:
    module = torch.nn.Softmax(-1)
    x = torch.randn(6, 8)[::2].T
    assert worst(shardc.from_torch(module, (x,)).compile()(x), module(x)) < 1e-6


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, a: Any, b: Any, *, c: Any) -> Any:
        return self.weight * a - 2 * b + 3 * c


@pytest.mark.parametrize("example", ["a tensor", "the weight"])
def test_one_tensor_may_be_the_example_of_several_arguments(example: str) -> None:
    module = Weighted()
    one = module.weight if example == "the weight" else torch.ones(3)
    values = torch.full((3,), 2.0), torch.full((3,), 5.0)
    program = shardc.from_torch(module, (one, one), {"c": one})
    assert program.arg_names == ("weight", "a", "b", "c")
    assert torch.equal(program.compile()(*values, c=values[0]), torch.full((3,), -2.0))
    step = shardc.torch.train_step(
        module, lambda m, a, b: m(a, b, c=a).sum(), torch.optim.SGD(module.parameters()), (one, one)
    )
    assert float(step.compile()(*values)) == -6.0


def test_exported_programs_and_meta_tensors(transformer: Any) -> None:
    exported = torch.export.export(transformer, (IDS,), strict=False)
    assert worst(shardc.from_torch(exported).compile()(IDS), transformer(IDS)) < 1e-6
    with torch.device("meta"):
        large = Transformer(1024, 256)
    program = shardc.from_torch(large, (IDS.to("meta"),))
    assert program.annotate({"ids": P("data")}, mesh={"data": 64}).simulate("h100-dgx:64").step_seconds > 0
    with pytest.raises(shardc.ShardcError, match="meta device"):
        program.compile()(IDS)


class Drops(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.rand_like(x) + x


class Chooses(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Drops()

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def test_unsupported_operators_name_module_and_line() -> None:
    with pytest.raises(shardc.ShardcError, match=r"draws random numbers") as error:
        shardc.from_torch(Chooses(), (torch.ones(3),))
    assert f"test_from_torch.py:{_line('rand_like(x) + x')}, module inner" in str(error.value)


class Counts(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nonzero(x)


class Resizes(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.ops.aten.resize_(x, [2, 3])


class Shrinks(torch.nn.Module):
    def __init__(self, *size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Any) -> Any:
        return x.clone().resize_(self.size) + 1


def test_a_copy_shrinks_in_place() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    assert torch.equal(shardc.from_torch(Shrinks(2, 3), (x,)).compile()(x), Shrinks(2, 3)(x))
    with pytest.raises(shardc.ShardcError, match="more elements than the tensor has"):
        shardc.from_torch(Shrinks(4, 4), (x,))


def test_open_sizes_name_operator_module_and_line() -> None:
    text = r"aten\.nonzero\.default: sizes or plain numbers depend on values"
    with pytest.raises(shardc.ShardcError, match=text) as error:
        shardc.from_torch(torch.nn.Sequential(torch.nn.Identity(), Counts()), (torch.ones(3),))
    assert f"test_from_torch.py:{_line('torch.nonzero(x)')}, module 1" in str(error.value)


def test_arguments_that_change_size_are_refused() -> None:
    with pytest.raises(shardc.ShardcError, match=r"aten\.resize_\.default cannot be rewritten") as error:
        shardc.from_torch(Resizes(), (torch.ones(3, 4),))
    assert f"test_from_torch.py:{_line('aten.resize_(x')}" in str(error.value)


def _line(text: str) -> int:
    return next(k for k, t in enumerate(Path(__file__).read_text().splitlines(), 1) if text in t)


def test_calls_that_do_not_fit() -> None:
    compiled = shardc.from_torch(
        Counting(), (torch.ones(2, 4), 2.0), {"extra": {"a": torch.ones(2), "b": torch.ones(2)}}
    )
    run = compiled.compile()
    extra = {"a": torch.ones(2), "b": torch.ones(2)}
    with pytest.raises(shardc.ShardcError, match=r"made for 2\.0"):
        run(torch.ones(2, 4), 3.0, extra=extra)
    with pytest.raises(shardc.ShardcError, match=r"is float32\[3, 4\], but the program takes float32\[2, 4\]"):
        run(torch.ones(3, 4), 2.0, extra=extra)
    with pytest.raises(shardc.ShardcError, match="structure"):
        run(torch.ones(2, 4))
    with pytest.raises(shardc.ShardcError, match="cannot make a program"):
        shardc.from_torch(torch.ones(3))


def test_control_flow() -> None:
    class Branches(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v * 2, (x,))

    compiled = shardc.from_torch(Branches(), (torch.ones(3),)).compile()
    for x in (torch.ones(3), -torch.ones(3)):
        assert torch.equal(compiled(x), Branches()(x))


def test_a_found_plan_is_pasted_into_annotate(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 512))
    program = shardc.from_torch(model, (torch.ones(4096, 512),))
    shardc.save(program, tmp_path / "model.hlo")
    for each in (program, shardc.load(tmp_path / "model.hlo")):
        plan = shardc.auto(each, machine="h100-dgx", mesh={"data": 8})
        plan.save(tmp_path / "plan.py")
        pasted: dict[str, Any] = {}
        exec((tmp_path / "plan.py").read_text(), pasted)
        assert pasted["MESH"] == {"data": 8} and pasted["SPECS"]
        layouts = [i.sharding for i in each.annotate(pasted["SPECS"], mesh=pasted["MESH"]).module.parameters]
        assert layouts == [i.sharding for i in plan.program.module.parameters]
