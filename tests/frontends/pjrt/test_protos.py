"""Messages as jaxlib writes and reads them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from jax._src import compiler
from jax._src.lib import xla_client

from shardc.frontends.pjrt.protos.messages import CompileOptionsProto, LayoutProto, ShapeProto
from shardc.frontends.pjrt.protos.shardings import sharding_message
from shardc.frontends.pjrt.protos.wire import Message, number
from shardc.hlo.errors import InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.text.notations.tiles import print_sharding


def test_options_of_compilation_read_and_write_as_jaxlibs() -> None:
    options = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=4,
        device_assignment=np.array([[3, 1, 2, 0]]),
        env_options_overrides={"xla_name": "text", "xla_flag": True, "xla_number": -4, "xla_share": 1.5},
    )
    options.argument_layouts = [xla_client.Shape.array_shape(np.dtype("f4"), (3, 4), (0, 1))]
    tried = 0.0
    if hasattr(options.executable_build_options, "exec_time_optimization_effort"):  # not in JAX 0.12
        options.executable_build_options.exec_time_optimization_effort = tried = 0.5
    data = options.SerializeAsString()
    read = CompileOptionsProto.read(data)
    build = read.executable_build_options
    assert (build.num_partitions, build.device_ordinal) == (4, -1)
    assert build.device_assignment is not None
    assert [d.replica_device_ids for d in build.device_assignment.computation_devices] == [(3,), (1,), (2,), (0,)]
    assert build.exec_time_optimization_effort == tried
    assert read.env_option_overrides["xla_number"].int_field == -4
    assert read.argument_layouts[0].layout is not None
    assert read.argument_layouts[0].layout.minor_to_major == (0, 1)
    assert xla_client.CompileOptions.ParseFromString(read.to_bytes()).SerializeAsString() == data


def test_cut_or_foreign_bytes_are_errors_of_ours() -> None:
    data = CompileOptionsProto(
        argument_layouts=(ShapeProto(dimensions=(3, 400), layout=LayoutProto((1, 0))),)
    ).to_bytes()
    generator = random.Random(7)
    failed = 0
    for _ in range(300):
        broken = bytearray(data[: generator.randrange(1, len(data))])
        broken[generator.randrange(len(broken))] = generator.randrange(256)
        try:
            CompileOptionsProto.read(bytes(broken))
        except InputError:
            failed += 1
    assert failed > 50, "seed 7"


class _Numbers(Message):
    large: int = number(1)
    several: tuple[int, ...] = number(2)
    singles: tuple[float, ...] = number(3, single=True)
    doubles: tuple[float, ...] = number(4)
    named: dict[str, int] = number(5)
    maybe: int | None = number(6)


@pytest.mark.parametrize("value", [0, 1, -1, 127, 128, 2**40, -(2**63), 2**63 - 1])
def test_numbers_come_back(value: int) -> None:
    made = _Numbers(value, (value, 3), (0.5, -2.0), (1e300,), {"a": value, "": 2}, 0)
    assert _Numbers.read(made.to_bytes()) == made


def test_packed_numbers_may_be_bytes() -> None:
    singles = np.array([1.5, -0.25], np.float32)
    assert _Numbers.read(_Numbers(singles=singles.tobytes()).to_bytes()).singles == (1.5, -0.25)


_MESH = Mesh({"x": 2, "y": 4, "z": 3})


@pytest.mark.parametrize(
    "sharding",
    [
        Sharding.of(_MESH, "x", None),
        Sharding.of(_MESH, ("z", "x"), "y"),
        Sharding.replicate(_MESH, 2),
        Sharding(_MESH, (DimSharding((AxisRef("y", 2, 2),)),)),
        Sharding(_MESH, (DimSharding((AxisRef("x"),)),), unreduced=(AxisRef("y"),)),
        Sharding(_MESH, (DimSharding(),), unreduced=(AxisRef("y"), AxisRef("z")), reduction="max"),
        Sharding(_MESH, (), unreduced=(AxisRef("x"), AxisRef("y"), AxisRef("z"))),
        Sharding(_MESH, (DimSharding((AxisRef("x"),)),), manual=("z",)),
        Sharding(_MESH, (DimSharding(),), manual=("x", "y", "z")),
        Sharding.of(Mesh((("a", 2), ("b", 2)), (0, 3, 1, 2)), "a", "b"),
        Sharding(Mesh((), (3,)), (DimSharding(),)),
        None,
    ],
    ids=str,
)
def test_shardings_are_those_of_their_text(sharding: Sharding | None) -> None:
    message = xla_client.OpSharding()
    message.ParseFromString(sharding_message(sharding).to_bytes())
    assert xla_client.HloSharding.from_proto(message) == xla_client.HloSharding.from_string(print_sharding(sharding))
