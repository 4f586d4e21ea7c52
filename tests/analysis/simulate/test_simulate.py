"""Simulated programs against figures that are counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.analysis.simulate.simulation import Simulation
from shardc.analysis.simulate.traffic_matrix import block_size
from shardc.hlo.errors import InputError, ShardcError
from shardc.stages.stages import Partitioned
from tests.analysis.simulate.simulated_programs import LOOP, PER_DEVICE, UNKNOWN


def _read(tmp_path: Path, text: str) -> shardc.Program:
    path = tmp_path / "program.hlo"
    path.write_text(text)
    return shardc.load(path)


def _loop(tmp_path: Path, trips: int = 50, **mesh: int) -> Partitioned:
    program = _read(tmp_path, LOOP.replace("TRIPS", str(trips)))
    annotated = program.annotate({"x": P("data", "model"), "w": P("model", None)}, mesh=Mesh(mesh))
    return annotated.partition(machine="h100-dgx")


def _consistent(s: Simulation) -> None:
    assert s.compute_seconds + s.exposed_seconds + s.idle_seconds == pytest.approx(s.step_seconds)
    assert sum(p.seconds for p in s.critical_path) == pytest.approx(s.step_seconds)
    spent = sum(w.count * w.seconds for w in s.work if w.kind != "collective")
    assert spent == pytest.approx(s.compute_seconds)
    assert sum(w.exposed_seconds for w in s.work) == pytest.approx(s.exposed_seconds)
    assert sum(w.flops * w.count for w in s.work) == s.flops
    for level, nbytes in s.link_bytes.items():
        assert nbytes == pytest.approx(sum(w.count * w.link_bytes.get(level, 0) for w in s.work))
    assert max(n for _, n in s.memory_curve) == max(s.memory.in_use) <= s.peak_bytes
    assert [t for t, _ in s.memory_curve] == sorted(t for t, _ in s.memory_curve)
    json.dumps(s.to_dict(), allow_nan=False)


def test_products_of_the_model_and_what_is_computed_again(tmp_path: Path) -> None:
    found = _loop(tmp_path, data=4, model=2).simulate("h100-dgx")
    _consistent(found)
    one = 2 * 1024 * 2048 * 2048
    assert found.model_flops == 50 * one // 8
    assert found.product_flops >= 2 * 50 * one // 8
    assert found.mfu == found.model_flops / (found.peak_flops * found.step_seconds)
    assert found.hfu == found.product_flops / (found.peak_flops * found.step_seconds)
    assert dict(found.mesh) == {"data": 4, "model": 2}
    assert found.devices == 8


def test_a_step_grows_with_its_trips_and_its_simulation_does_not(tmp_path: Path) -> None:
    few, many = (_loop(tmp_path, trips, data=4, model=2).simulate("h100-dgx") for trips in (100, 100_000))
    _consistent(many)
    assert len(many.events) == len(few.events)
    assert many.flops == pytest.approx(1000 * few.flops, rel=0.02)
    assert many.step_seconds == pytest.approx(1000 * few.step_seconds, rel=0.05)
    (loop,) = many.loops
    assert (loop.trips, loop.known) == (100_000, True)


def test_a_checkpoint_under_scan_counts_once() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    layers, width, batch = 6, 64, 32

    def loss(w, x):  # type: ignore[no-untyped-def]
        layer = jax.checkpoint(lambda h, w: (jnp.tanh(h @ w), None))
        return jnp.sum(jax.lax.scan(layer, x, w)[0])

    shapes = ((layers, width, width), (batch, width))
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    program = shardc.from_jax(jax.jit(jax.grad(loss)), *arguments)
    one = 2 * batch * width * width * layers
    alone = program.partition().simulate("tpu-v4")
    assert (alone.model_flops, alone.product_flops) == (3 * one, 4 * one)
    split = program.annotate({"x": P("data", None)}, mesh=Mesh({"data": 4})).partition(machine="tpu-v4").simulate()
    _consistent(split)
    assert split.model_flops == 3 * one // 4
    assert split.product_flops >= one


def test_a_manual_computation_counts_on_all_devices() -> None:
    jax = pytest.importorskip("jax")
    from jax.sharding import PartitionSpec as JaxP

    specs = {"in_specs": (JaxP("data", "model"), JaxP("model", None)), "out_specs": JaxP("data", None)}
    mesh = Mesh({"data": 4, "model": 2}).to_jax()
    product = jax.shard_map(lambda x, w: jax.lax.psum(x @ w, "model"), mesh=mesh, **specs)
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((16, 32), (32, 8))]
    found = shardc.from_jax(jax.jit(product), *arguments).partition(machine="h100-dgx").simulate()
    assert found.model_flops * 8 == 2 * 16 * 32 * 8


def test_one_device_waits_for_nobody(tmp_path: Path) -> None:
    found = _read(tmp_path, LOOP.replace("TRIPS", "3")).partition().simulate("h100-dgx")
    _consistent(found)
    assert (found.devices, found.exposed_seconds, found.idle_seconds) == (1, 0.0, 0.0)
    assert found.model_flops == 3 * 2 * 1024 * 2048 * 2048
    assert not found.traffic_matrix().any()


def test_a_loop_of_unknown_length_is_one_iteration_and_says_so(tmp_path: Path) -> None:
    found = _read(tmp_path, UNKNOWN).partition().simulate("h100-dgx")
    assert [(loop.trips, loop.known) for loop in found.loops] == [(1, False)]
    assert "unknown length" in found.notes[0]
    assert "m.py:3" in found.notes[0]
    assert "unknown length" in str(found)


def test_a_program_for_each_device_is_simulated_as_it_is(tmp_path: Path) -> None:
    found = _read(tmp_path, PER_DEVICE).partition().simulate("h100-dgx")
    _consistent(found)
    assert found.devices == 8
    (gather,) = [w for w in found.work if w.kind == "collective"]
    assert (gather.opcode, gather.group_size, gather.count) == ("all-gather", 8, 1)
    assert gather.hidden_seconds > 0
    assert gather.wire_bytes == 7 * 256 * 1024 * 4


def test_traffic_goes_where_groups_are(tmp_path: Path) -> None:
    found = _loop(tmp_path, data=4, model=2).simulate("h100-dgx")
    matrix = found.traffic_matrix()
    sent = sum(w.count * w.wire_bytes for w in found.work)
    assert matrix.shape == (8, 8)
    assert matrix.sum() == pytest.approx(8 * sent)
    near = np.zeros((8, 8), bool)
    for d in range(8):
        near[d, d ^ 1] = True
    along_model = sum(w.count * w.wire_bytes for w in found.work if w.axes == ("model",))
    assert matrix[near].sum() == pytest.approx(8 * along_model)
    assert found.traffic_matrix(4).sum() == pytest.approx(8 * sent)


@pytest.mark.parametrize(
    ("devices", "blocks", "each"),
    [(1, 64, 1), (64, 64, 1), (80, 64, 2), (97, 64, 2), (66, 64, 2), (65, 64, 2), (9, 4, 3)],
)
def test_blocks_of_traffic_are_equal_but_for_the_last(devices: int, blocks: int, each: int) -> None:
    assert block_size(devices, blocks) == each
    assert -(-devices // each) <= blocks


def test_larger_than_memory_names_what_is_large(tmp_path: Path) -> None:
    machine = tmp_path / "small.toml"
    text = (Path(shardc.__file__).parent / "costs/machines/h100-dgx.toml").read_text()
    machine.write_text(text.replace("memory_bytes = 80_000_000_000", "memory_bytes = 8_000_000"))
    partitioned = _loop(tmp_path, data=4, model=2)
    with pytest.raises(InputError, match=r"needs .* MiB on each of 8 devices, .* has 7\.6 MiB") as caught:
        partitioned.simulate(machine)
    assert "f32[" in str(caught.value)
    assert "--ignore-memory" in str(caught.value)
    found = partitioned.simulate(machine, ignore_memory=True)
    assert not found.fits
    assert "LARGER THAN MEMORY" in str(found)


def test_bad_machines_and_meshes(tmp_path: Path) -> None:
    partitioned = _loop(tmp_path, data=4, model=2)
    with pytest.raises(InputError, match="no machine 'abacus'"):
        partitioned.simulate("abacus")
    with pytest.raises(InputError, match="16"):
        partitioned.simulate("h100-dgx:16")
    with pytest.raises(ShardcError, match="nowhere"):
        partitioned.simulate("h100-dgx", mapping="nowhere=nvlink")
    with pytest.raises(InputError, match="no machine to simulate"):
        _read(tmp_path, LOOP.replace("TRIPS", "3")).partition().simulate()


def test_the_same_program_gives_the_same_simulation(tmp_path: Path) -> None:
    one, other = (_loop(tmp_path, data=4, model=2).simulate("tpu-v4") for _ in range(2))
    assert one.to_dict() == other.to_dict()


def test_saved_as_data_a_trace_and_a_picture(tmp_path: Path) -> None:
    found = _loop(tmp_path, data=4, model=2).simulate("h100-dgx")
    found.save(tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["step_seconds"] == found.step_seconds
    found.save(tmp_path / "s.trace.json")
    assert "traceEvents" in json.loads((tmp_path / "s.trace.json").read_text())
    pytest.importorskip("matplotlib")
    found.save(tmp_path / "s.svg")
    assert "<svg" in (tmp_path / "s.svg").read_text()
    with pytest.raises(InputError, match=r"cannot be written as '\.doc'"):
        found.save(tmp_path / "s.doc")


def test_products_that_add_nothing_up_are_no_products() -> None:
    for subscripts, shapes in (("ik,kj->ij", ((4096, 1), (1, 4096))), ("ij,j->ij", ((4096, 64), (64,)))):

        def product(x: object, y: object, subscripts: str = subscripts) -> object:
            return np.einsum(subscripts, x, y)

        given = [np.zeros(dims, np.float32) for dims in shapes]
        program = shardc.trace(product, *given, mesh=Mesh({"a": 2}), in_shardings=(P("a"), None))
        found = program.partition(machine="h100-dgx").simulate("h100-dgx")
        assert found.mfu == found.hfu == 0
        assert "no products" in str(found)
