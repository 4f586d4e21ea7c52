"""Plans of torch.distributed as annotations, beside what PyTorch's own classes say."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from models import Transformer, seeded, worst  # noqa: E402
from torch.distributed.tensor import Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

import shardc  # noqa: E402
import shardc.torch  # noqa: E402
from shardc import P  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.arange(24).reshape(4, 6) % 32
PLAN: dict[str, Any] = {
    "layers.*.self_attn.[qkv]_proj": ColwiseParallel(),
    "layers.*.self_attn.o_proj": RowwiseParallel(),
    "layers.*.up_proj": ColwiseParallel(),
    "layers.*.down_proj": RowwiseParallel(),
    "layers.*.norm": SequenceParallel(),
}


def test_a_plan_splits_as_megatron_does() -> None:
    model = seeded(Transformer)
    specs = shardc.torch.parallelize_module(model, "model", PLAN)
    assert specs["layers.0.self_attn.q_proj.weight"] == P("model", None)
    assert specs["layers.1.down_proj.weight"] == P(None, "model") and specs["layers.0.norm.weight"] == P()
    program = shardc.from_torch(model, (IDS,)).annotate(specs, mesh={"model": 4})
    collectives = program.partition(plan="propagated").report()["collectives"]
    assert [c["op"] for c in collectives] == ["all-reduce"] * 4
    assert worst(program.compile()(IDS), model(IDS)) < 1e-6


def test_fully_sharded_values_are_those_of_the_module() -> None:
    model = seeded(Transformer)
    specs = shardc.torch.fully_shard(model, "data")
    assert set(specs) == {n for n, _ in model.named_parameters()} and specs["embed.weight"] == P("data")
    both = shardc.torch.fully_shard(model, "data", shardc.torch.parallelize_module(model, "model", PLAN))
    assert both["layers.0.up_proj.weight"] == P(("model", "data"), None)
    assert both["layers.0.down_proj.weight"] == P("data", "model")
    program = shardc.from_torch(model, (IDS,)).annotate({**both, "ids": P("data")}, mesh={"data": 2, "model": 2})
    assert worst(program.compile()(IDS), model(IDS)) < 1e-6


def test_placements() -> None:
    axes = ("data", "model")
    assert shardc.torch.spec_of_placements((Shard(0), Shard(-1)), axes, 2) == P("data", "model")
    assert shardc.torch.spec_of_placements((Shard(0), Shard(0)), axes, 2) == P(("data", "model"))
    assert shardc.torch.spec_of_placements((Replicate(), Replicate()), axes, 1) == P()
    with pytest.raises(shardc.ShardcError, match="Partial"):
        shardc.torch.spec_of_placements((Partial(), Replicate()), axes, 2)
    with pytest.raises(shardc.ShardcError, match="1 placements were given for 2 axes"):
        shardc.torch.spec_of_placements((Shard(0),), axes, 2)


def test_what_has_no_meaning_is_refused_by_name() -> None:
    model = seeded(Transformer)
    with pytest.raises(shardc.ShardcError, match="the style PrepareModuleInput"):
        shardc.torch.parallelize_module(model, "model", {"head": PrepareModuleInput()})
    with pytest.raises(shardc.ShardcError, match="ColwiseParallel is not supported for a LayerNorm"):
        shardc.torch.parallelize_module(model, "model", {"layers.0.norm": ColwiseParallel()})
    with pytest.raises(shardc.ShardcError, match="no module is called 'nowhere'"):
        shardc.torch.parallelize_module(model, "model", {"nowhere": ColwiseParallel()})


def test_an_axis_splits_a_parameter_once() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8))
    for style, spec in (("ColwiseParallel", "P('tp', None)"), ("RowwiseParallel", "P(None, 'tp')")):
        specs = shardc.torch.parallelize_module(model, "tp", {"0": style})
        with pytest.raises(shardc.ShardcError, match="split over tp already") as caught:
            shardc.torch.fully_shard(model, "tp", specs)
        assert spec in str(caught.value) and "where: 0.weight" in str(caught.value)
