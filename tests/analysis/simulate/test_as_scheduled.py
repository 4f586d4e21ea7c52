"""Programs that XLA has scheduled are simulated as they are: their order, fusions, pairs, library calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shardc
from shardc.analysis.simulate.simulation import Simulation
from shardc.compiler.lower.as_scheduled import lower_as_scheduled
from shardc.compiler.lower.lowered import AwaitStep, BufferCopy, Collective, KernelStep, WhileStep, leaf_steps
from shardc.costs.ops.table import instruction_flops
from shardc.hlo.errors import InputError
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.reader import read_hlo

HEADER = "HloModule step, is_scheduled=true, num_partitions=8\n\n"

GPU = (
    HEADER
    + """
%act_computation (p: bf16[1024,8192]) -> bf16[1024,8192] {
  %p = bf16[1024,8192]{1,0} parameter(0)
  ROOT %tanh = bf16[1024,8192]{1,0} tanh(%p)
}

ENTRY %main_spmd {
  %x = bf16[1024,4096]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}
  %w = bf16[4096,1024]{1,0} parameter(1), sharding={devices=[1,8]<=[8]}
  %im = bf16[16,64,56,56]{3,2,1,0} parameter(2)
  %k = bf16[64,64,3,3]{3,2,1,0} parameter(3)
  %ag = (bf16[4096,1024]{1,0}, bf16[4096,8192]{1,0}) all-gather-start(%w), channel_id=1, replica_groups=[1,8]<=[8],
    dimensions={1}, use_global_device_ids=true, metadata={op_name="dot" source_file="step.py" source_line=12}
  %conv = (bf16[16,64,56,56]{3,2,1,0}, u8[1048576]{0}) custom-call(%im, %k), window={size=3x3 pad=1_1x1_1},
    dim_labels=bf01_oi01->bf01, custom_call_target="__cudnn$convForward"
  %agd = bf16[4096,8192]{1,0} all-gather-done(%ag)
  %gemm = (bf16[1024,8192]{1,0}, s8[33554432]{0}) custom-call(%x, %agd), custom_call_target="__cublas$gemm",
    backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}
  %out = bf16[1024,8192]{1,0} get-tuple-element(%gemm), index=0
  %act = bf16[1024,8192]{1,0} fusion(%out), kind=kLoop, calls=%act_computation
  ROOT %mine = bf16[1024,8192]{1,0} custom-call(%act), custom_call_target="my_kernel"
}
"""
)


def write(tmp_path: Path, text: str) -> shardc.Program:
    path = tmp_path / "dump.hlo"
    path.write_text(text)
    return shardc.load(path)


def opcodes(text: str) -> list[str]:
    """What the steps of a text are, in order."""
    out = []
    for step in leaf_steps(lower_as_scheduled(read_hlo(text)).steps):
        if isinstance(step, Collective):
            out.append(step.instruction.opcode + ("-start" if step.asynchronous else ""))
        elif isinstance(step, AwaitStep):
            out.append(step.started.instruction.opcode + "-done")
        elif isinstance(step, KernelStep):
            out.append(step.instruction.opcode)
        elif isinstance(step, BufferCopy):
            out.append("result")
    return out


def test_a_dump_for_gpus(tmp_path: Path) -> None:
    found = write(tmp_path, GPU).simulate("h100-dgx")
    assert found.devices == 8
    gather, conv, gemm, act, mine = found.work[:5]
    assert (gather.kind, gather.opcode, gather.payload_bytes) == ("collective", "all-gather", 2 * 4096 * 8192)
    # What stands between start and done hides a part of it.
    assert gather.hidden_seconds == pytest.approx(conv.seconds)
    assert conv.flops == 2 * 16 * 64 * 64 * 9 * 56 * 56 - 2 * 16 * 64 * 64 * (2 * 3 * 56 * 2 - 4)
    assert gemm.flops == 2 * 1024 * 4096 * 8192
    assert gemm.limit == "compute"
    assert act.flops > 0
    assert act.count == 1
    assert mine.limit == "memory"
    assert mine.read == mine.written == 2 * 1024 * 8192
    assert any("unknown meaning" in note and "1 x my_kernel" in note for note in found.notes)


def test_meshes_name_the_devices_of_a_dump(tmp_path: Path) -> None:
    program = write(tmp_path, GPU)
    found = program.simulate("tpu-v5p:2x4", mesh=shardc.Mesh({"data": 2, "model": 4}), mapping="data=dcn,model=x+y")
    assert found.mapping == {"data": "dcn", "model": "torus x,y"}
    with pytest.raises(InputError, match="8"):
        program.simulate("h100-dgx", mesh=shardc.Mesh({"data": 4}))
    with pytest.raises(InputError, match="no machine"):
        program.simulate()


@pytest.mark.parametrize(
    ("target", "operands", "result", "config", "flops"),
    [
        ("__cublas$lt$matmul", ("f32[4,8,16]", "f32[4,32,16]", "f32[32]"), "f32[4,8,32]", True, 2 * 4 * 8 * 16 * 32),
        ("__onednn$matmul", ("f32[4,8,16]", "f32[4,16,32]"), "f32[4,8,32]", False, 2 * 4 * 8 * 16 * 32),
    ],
)
def test_products_by_libraries(target: str, operands: tuple[str, ...], result: str, config: bool, flops: int) -> None:
    numbers = '"lhs_contracting_dimensions":["2"],"rhs_contracting_dimensions":["2"]'
    batch = '"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]'
    text = f'"gemm_backend_config":{{"dot_dimension_numbers":{{{numbers},{batch}}},"beta":0}}' if config else ""
    lines = [f"  %p{n} = {s} parameter({n})" for n, s in enumerate(operands)]
    names = ", ".join(f"%p{n}" for n in range(len(operands)))
    call = f'custom-call({names}), custom_call_target="{target}", backend_config={{{text}}}'
    module = read_hlo(HEADER + "ENTRY %e {\n" + "\n".join(lines) + f"\n  ROOT %r = {result} {call}\n}}")
    (step,) = (s for s in lower_as_scheduled(module).steps if isinstance(s, KernelStep))
    assert (step.instruction.opcode, instruction_flops(step.instruction)) == ("dot", flops)
    assert len(step.operands) == len(operands)


@pytest.mark.parametrize("which", ["Forward", "BackwardInput", "BackwardFilter"])
def test_convolutions_and_their_gradients_take_the_same(which: str) -> None:
    image, kernel, out = "f32[2,8,10,10]", "f32[4,8,3,3]", "f32[2,4,8,8]"
    a, b, r = {
        "Forward": (image, kernel, out), "BackwardInput": (out, kernel, image), "BackwardFilter": (image, out, kernel),
    }[which]  # fmt: skip
    target = f'custom_call_target="__cudnn$conv{which}"'
    call = f"custom-call(%p, %q), window={{size=3x3}}, dim_labels=bf01_oi01->bf01, {target}"
    text = f"ENTRY %e {{\n  %p = {a} parameter(0)\n  %q = {b} parameter(1)\n  ROOT %r = ({r}, u8[16]) {call}\n}}"
    (step,) = (s for s in lower_as_scheduled(read_hlo(HEADER + text)).steps if isinstance(s, KernelStep))
    assert instruction_flops(step.instruction) == 2 * 2 * 4 * 8 * 9 * 64
    assert [s.shape for s in step.results] == [array_shape("f32", *map(int, r[4:-1].split(","))), array_shape("u8", 16)]


def test_order_and_pairs_are_kept() -> None:
    text = """
%add { %x = f32[] parameter(0)  %y = f32[] parameter(1)  ROOT %s = f32[] add(%x, %y) }
%inner { %p = f32[64] parameter(0)  ROOT %n = f32[64] negate(%p) }
%rs {
  %a = f32[64] parameter(0)
  ROOT %r = f32[8] reduce-scatter(%a), dimensions={0}, replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
}
%aside { %q = f32[64] parameter(0)  ROOT %c = f32[64] cosine(%q) }

ENTRY %e {
  %p = f32[64] parameter(0)
  %s = ((f32[64]), f32[8]) async-start(%p), calls=%rs
  %cp = (f32[64], f32[64], u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1},{1,2}}
  %n = f32[64] call(%p), to_apply=%inner
  %as = ((f32[64]), f32[64], u32[]) async-start(%n), calls=%aside
  %cpd = f32[64] collective-permute-done(%cp)
  %ad = f32[64] async-done(%as)
  %co = (f32[64], f32[64], u32[]) copy-start(%ad)
  %d = f32[8] async-done(%s)
  %cod = f32[64] copy-done(%co)
  %b = f32[64] opt-barrier(%cpd)
  ROOT %t = (f32[8], f32[64], f32[64]) tuple(%d, %cod, %b)
}
"""
    assert opcodes(HEADER + text) == [
        *("reduce-scatter-start", "collective-permute-start", "negate", "cosine", "collective-permute-done"),
        *("copy", "reduce-scatter-done", "result", "result", "result"),
    ]
    notes = lower_as_scheduled(read_hlo(HEADER + text)).notes
    assert [n.split(",")[0] for n in notes] == ["asynchronous computations", "asynchronous copies"]


def test_sends_are_permutes_that_both_ends_await() -> None:
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2},{2,3}}"}'
    text = f"""
ENTRY %e {{
  %p = f32[64] parameter(0)
  %k = token[] after-all()
  %r = (f32[64], u32[], token[]) recv(%k), channel_id=1, {pairs}
  %s = (f32[64], u32[], token[]) send(%p, %k), channel_id=1, {pairs}
  %n = f32[64] negate(%p)
  %rd = (f32[64], token[]) recv-done(%r), channel_id=1
  %got = f32[64] get-tuple-element(%rd), index=0
  %sum = f32[64] add(%got, %n)
  %sd = token[] send-done(%s), channel_id=1
  ROOT %t = f32[64] copy(%sum)
}}
"""
    expected = ["collective-permute-start", "negate", "collective-permute-done", "add", "copy", "result"]
    assert opcodes(HEADER + text) == expected


def test_starts_that_a_loop_carries_are_waited_for_at_once() -> None:
    text = """
%body {
  %c = (f32[8], f32[64], s32[]) parameter(0)
  %i = f32[8] get-tuple-element(%c), index=0
  %o = f32[64] get-tuple-element(%c), index=1
  %n = s32[] get-tuple-element(%c), index=2
  %pair = (f32[8], f32[64]) tuple(%i, %o)
  %d = f32[64] all-gather-done(%pair)
  %x = f32[8] slice(%d), slice={[0:8]}
  %s = (f32[8], f32[64]) all-gather-start(%x), dimensions={0}, replica_groups={{0,1,2,3,4,5,6,7}}
  %i2 = f32[8] get-tuple-element(%s), index=0
  %o2 = f32[64] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %m = s32[] add(%n, %one)
  ROOT %t = (f32[8], f32[64], s32[]) tuple(%i2, %o2, %m)
}
%condition {
  %c = (f32[8], f32[64], s32[]) parameter(0)
  %n = s32[] get-tuple-element(%c), index=2
  %five = s32[] constant(5)
  ROOT %l = pred[] compare(%n, %five), direction=LT
}
ENTRY %e {
  %a = f32[8] parameter(0)
  %b = f32[64] parameter(1)
  %z = s32[] constant(0)
  %init = (f32[8], f32[64], s32[]) tuple(%a, %b, %z)
  ROOT %w = (f32[8], f32[64], s32[]) while(%init), condition=%condition, body=%body
}
"""
    lowered = lower_as_scheduled(read_hlo(HEADER + text))
    (loop,) = (s for s in lowered.steps if isinstance(s, WhileStep))
    (gather,) = (s for s in leaf_steps(loop.body) if isinstance(s, Collective))
    assert not gather.asynchronous
    assert lowered.notes == ("collectives that another computation awaits, treated as synchronous: 1",)


def test_collectives_tell_how_many_devices_there_are() -> None:
    text = "HloModule m, is_scheduled=true\n\nENTRY %e {\n  %p = f32[64] parameter(0)\n"
    text += "  ROOT %r = f32[64] collective-permute(%p), source_target_pairs={{0,1},{1,5}}\n}\n"
    assert lower_as_scheduled(read_hlo(text)).module.num_partitions == 6


DUMP = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
def array(spec, *dims): return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
def step(ws, x):
    def loss(ws):
        def layer(h, w): return jnp.tanh(h @ w[0]) @ w[1], None
        return (jax.lax.scan(layer, x, ws)[0] ** 2).sum()
    value, grads = jax.value_and_grad(loss)(ws)
    return jax.tree.map(lambda a, b: a - 0.1 * b, ws, grads), value
ws = (array((None, "data", "model"), 4, 256, 512), array((None, "model", "data"), 4, 512, 256))
sys.stdout.write(jax.jit(step).lower(ws, array(("data",), 64, 256)).compile().as_text())
"""


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What XLA on eight CPU devices makes of a training step."""
    pytest.importorskip("jax")
    path = tmp_path_factory.mktemp("xla") / "step.hlo"
    done = subprocess.run([sys.executable, "-c", DUMP], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    path.write_text(done.stdout)
    return path


def simulated(path: Path, **options: Any) -> Simulation:
    return shardc.load(path).simulate("tpu-v5e:8", **options)


def test_a_dump_of_jax(dumped: Path) -> None:
    """Every instruction that computes is one kernel, in XLA's order; products are those of the program."""
    found = simulated(dumped)
    text = dumped.read_text()
    entry = text[text.index("\nENTRY") :]
    assert "is_scheduled=true" in text.splitlines()[0]
    assert found.devices == 8
    # Six products a layer: two ahead, two for each of the gradients.
    assert found.product_flops == 4 * 6 * 2 * 64 * 256 * 512 // 8
    names = {w.name for w in found.work}
    for line in entry.splitlines():
        if " fusion(" in line:
            assert line.split(" = ")[0].split("%")[-1] in names, line
    assert {loop.trips for loop in found.loops} == {4}
    assert found.step_seconds == pytest.approx(found.compute_seconds + found.exposed_seconds + found.idle_seconds)
    named = simulated(dumped, mesh=shardc.Mesh({"data": 2, "model": 4}))
    assert {w.axes for w in named.work if w.kind == "collective"} == {("data",), ("model",)}
    assert named.step_seconds < 1.5 * found.step_seconds


def test_one_that_was_partitioned_here_is_like_xla_s_own(dumped: Path) -> None:
    """Through all stages the answer is the same."""
    partitioned = shardc.load(dumped).partition()
    assert partitioned.simulate("tpu-v5e:8").step_seconds == simulated(dumped).step_seconds


def test_scheduled_texts_of_xla_s_tests(conformance: Path) -> None:
    count = 0
    for path in sorted(conformance.glob("hlo/*latency_hiding*")):
        text = path.read_text()
        if "is_scheduled=true" not in text or text.count(" call(") > 10:  # one has calls of calls, 2^15 in all
            continue
        try:
            program = shardc.load(path)
        except shardc.ShardcError:
            continue
        found = program.simulate("h100-dgx", ignore_memory=True)
        assert found.step_seconds > 0
        count += 1
    assert count > 30


OFFLOADED = """HloModule step, is_scheduled=true

ENTRY %main {
  %x = f32[4096,4096]{1,0} parameter(0)
  %out = (f32[4096,4096]{1,0:S(5)}, f32[4096,4096]{1,0}, u32[]) copy-start(%x)
  %y = f32[4096,4096]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %there = f32[4096,4096]{1,0:S(5)} copy-done(%out)
  %in = (f32[4096,4096]{1,0}, f32[4096,4096]{1,0:S(5)}, u32[]) copy-start(%there)
  %z = f32[4096,4096]{1,0} dot(%y, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %here = f32[4096,4096]{1,0} copy-done(%in)
  ROOT %r = f32[4096,4096]{1,0} add(%z, %here)
}
"""


def test_copies_to_host_memory_go_on_beside_products(tmp_path: Path) -> None:
    """As XLA prints them behind its host offloading: by their memory spaces, over the link, until their dones."""
    assert opcodes(OFFLOADED)[:6] == ["copy", "dot", "copy-done", "copy", "dot", "copy-done"]
    found = write(tmp_path, OFFLOADED).simulate("h100-dgx:1")
    nbytes = 4 * 4096 * 4096
    assert found.link_bytes == {"pcie to host": nbytes, "pcie from host": nbytes}
    assert found.host_bytes >= nbytes
    assert found.overlapped_seconds > 0
    assert not any("copied where they start" in note for note in found.notes)
