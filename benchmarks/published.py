"""Predicted utilisation of large training runs beside what their publishers measured.

python benchmarks/published.py [ROW ...]

Every row is a whole way: the model in JAX on an abstract mesh, exported, propagated, partitioned for the machine,
lowered, scheduled, simulated. Utilisation counts the model's operations as the publisher does; what rematerialisation
computes again does not count. With names (parts of them) only those rows, with what their time consists of.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from published_models import Decoder, Run, scaled, training_step
from tables import table

import shardc

__all__ = ["GPUS", "OTHERS", "ROWS", "Found", "Row", "measure", "section", "summary"]


@dataclass(frozen=True)
class Row:
    """A published run: ``tensor`` chips share a layer, ``slices`` the data, the rest of the chips all parameters."""

    name: str
    machine: str
    chips: int
    slices: int
    model: Decoder
    per_chip: int
    remat: str
    tensor: int
    utilisation: float
    parts: int = 1
    causal: bool = True

    @property
    def mesh(self) -> dict[str, int]:
        inside = self.chips // self.slices // self.tensor
        axes = {"data": self.slices, "fsdp": inside, "tensor": self.tensor}
        return {k: n for k, n in axes.items() if n > 1}

    def sized_machine(self, folder: Path) -> str:
        """The machine with its size, as `partition` and `simulate` read it; a description without fused attention is
        written into ``folder``."""
        count = str(self.chips) if self.slices == 1 else f"{self.slices}x{self.chips // self.slices}"
        if self.model.flash:
            return f"{self.machine}:{count}"
        described = Path(shardc.__path__[0], "costs", "machines", f"{self.machine}.toml").read_text("utf-8")
        path = folder / f"{self.machine}-without-flash.toml"
        path.write_text(described.replace("fused_attention = true", "fused_attention = false"), encoding="utf-8")
        return f"{path}:{count}"

    @property
    def run(self) -> Run:
        return Run(self.model, self.mesh, self.per_chip * self.chips, self.remat, self.parts)


def _v5p(scale: int, chips: int, slices: int, per_chip: int, remat: str, tensor: int, published: float) -> Row:
    name = f"{scale}B, {slices} x v5p-{2 * chips // slices}"
    return Row(name, "tpu-v5p", chips, slices, scaled(scale), per_chip, remat, tensor, published)


#: With a head_dim of 256 and an MLP without gate their parameters are the 22 and 52 billion that they are called by.
#: Their scripts, older than those for v5p, do not ask for flash attention.
_22B = Decoder(emb=6_144, heads=24, mlp=24_576, layers=48, head_dim=256, gated=False, flash=False)
_52B = Decoder(emb=12_288, heads=32, mlp=49_152, layers=32, head_dim=256, gated=False, flash=False)

#: The scripts for 1024 name a data axis of 16 too, with which weights and moments alone would be 187 GB per chip; here
#: parameters are split over all chips, as in their other versions.
ROWS: tuple[Row, ...] = (
    _v5p(32, 64, 1, 7, "minimal", 4, 0.7147),
    _v5p(32, 128, 2, 7, "minimal", 4, 0.6943),
    _v5p(64, 64, 1, 3, "minimal", 4, 0.7031),
    _v5p(64, 128, 2, 3, "minimal", 4, 0.6726),
    _v5p(128, 128, 1, 1, "minimal", 8, 0.6868),
    _v5p(128, 256, 1, 1, "minimal", 8, 0.6883),
    _v5p(256, 512, 1, 1, "minimal", 8, 0.6709),
    _v5p(256, 1_024, 2, 1, "minimal", 8, 0.6299),
    _v5p(512, 512, 1, 2, "full", 8, 0.6399),
    _v5p(1_024, 1_024, 1, 2, "full", 8, 0.5535),
    _v5p(1_024, 2_048, 1, 2, "full", 8, 0.6480),
    Row("22B, 1 x v4-128", "tpu-v4", 64, 1, _22B, 13, "full", 1, 0.567),
    Row("22B, 8 x v4-128", "tpu-v4", 512, 8, _22B, 13, "full", 1, 0.532),
    Row("52B, 1 x v4-384", "tpu-v4", 192, 1, _52B, 7, "full", 1, 0.560),
)

#: What else the same publisher lists. Those on v5e nobody looked at before the model of machines was settled; the share
#: of the peak that large products reach, one for all TPUs, was set when the first rows above were known.
OTHERS: tuple[Row, ...] = (
    _v5p(128, 256, 2, 1, "minimal", 8, 0.6634),
    _v5p(128, 512, 2, 1, "minimal", 8, 0.5966),
    _v5p(512, 1_024, 2, 2, "full", 8, 0.6145),
    _v5p(1_024, 2_048, 2, 2, "full", 8, 0.5155),
    _v5p(1_024, 4_096, 2, 2, "full", 8, 0.6083),
    Row("22B, 2 x v4-128", "tpu-v4", 128, 2, _22B, 13, "full", 1, 0.552),
    Row("22B, 4 x v4-128", "tpu-v4", 256, 4, _22B, 13, "full", 1, 0.543),
    Row("52B, 2 x v4-384", "tpu-v4", 384, 2, _52B, 7, "full", 1, 0.589),
    Row("16B, 1 x v5e-256", "tpu-v5e", 256, 1, scaled(16), 6, "full", 1, 0.6110),
    Row("32B, 1 x v5e-256", "tpu-v5e", 256, 1, scaled(32), 4, "full", 1, 0.6686),
    Row("64B, 1 x v5e-256", "tpu-v5e", 256, 1, scaled(64), 2, "full", 1, 0.5990),
    Row("32B, 32 x v5e-256", "tpu-v5e", 8_192, 32, scaled(32), 4, "full", 1, 0.6040),
)
_175B = Decoder(emb=12_288, heads=96, mlp=49_152, layers=96, vocab=51_200, gated=False, gpt=True)

#: GPT-3 on H100s at a batch of 1,152: published between 47% (96) and 42% (4,608), with layers in pipeline stages. Here
#: parameters are split over the nodes instead, so these are not runs of the same program.
GPUS: tuple[Row, ...] = (
    Row("GPT-3 175B, 96 x H100", "h100-dgx", 96, 1, _175B, 12, "minimal", 8, 0.47, parts=16, causal=False),
)


@dataclass(frozen=True)
class Found:
    """What was predicted for a row, and the seconds of each stage on one core."""

    row: Row
    simulation: Any
    utilisation: float
    stages: Mapping[str, float]


def measure(row: Row) -> Found:
    """Export, propagate, partition, lower and simulate."""
    start = time.process_time()
    step, arguments = training_step(row.run)
    program = shardc.from_jax(step, *arguments)
    exported = time.process_time()
    propagated = program.propagate()
    spread = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        machine = row.sized_machine(Path(folder))
        partitioned = propagated.partition(machine=machine)
        divided = time.process_time()
        simulation = partitioned.simulate(machine, ignore_memory=True)
    done = time.process_time()
    tokens = row.run.batch * row.model.length
    flops = row.model.flops_of_token(causal=row.causal) * tokens / row.chips
    found = flops / simulation.step_seconds / simulation.peak_flops
    stages = {
        "export": exported - start,
        "propagate": spread - exported,
        "partition": divided - spread,
        "simulate": done - divided,
    }
    return Found(row, simulation, found, stages)


HEAD = (
    "run", "mesh", "published", "predicted", "difference", "step", "exposed transfers", "peak memory / capacity",
    "export + propagate + partition + simulate",
)  # fmt: skip


def cells(found: Found) -> tuple[str, ...]:
    """A row of the table."""
    row, s = found.row, found.simulation
    return (
        row.name,
        " x ".join(f"{k} {n}" for k, n in row.mesh.items()),
        f"{row.utilisation:.1%}",
        f"{found.utilisation:.1%}",
        f"{100 * (found.utilisation - row.utilisation):+.1f}",
        f"{s.step_seconds:.2f} s",
        f"{s.exposed_seconds / s.step_seconds:.1%}",
        f"{s.peak_bytes / 1e9:.0f} / {s.capacity_bytes / 1e9:.0f} GB",
        " + ".join(f"{t:.1f}" for t in found.stages.values()) + " s",
    )


NOTE = """Utilisation is of the chip's bf16 peak and counts six operations per parameter and token and attention's two
products (on TPUs half of them, as their publisher does); what is computed again does not count. TPU rows: the layers'
activations lie split over `tensor` too, as their publisher's rules have it; seconds of the stages are of one core.
"""


def section() -> str:
    """The tables as Markdown: the rows to hold the model against, further ones, and another program on GPUs."""
    texts = [NOTE, summary([measure(r) for r in ROWS]), "What the same publisher lists besides:\n"]
    texts += [summary([measure(r) for r in OTHERS]), "Not the same program (published with pipeline stages):\n"]
    return "\n".join([*texts, table(HEAD, [cells(measure(r)) for r in GPUS])])


def summary(found: Sequence[Found]) -> str:
    """A table, the mean error, and how many pairs of rows are in the published order."""
    errors = [abs(f.utilisation - f.row.utilisation) for f in found]
    pairs = [
        (a.utilisation - b.utilisation) * (a.row.utilisation - b.row.utilisation) > 0
        for n, a in enumerate(found)
        for b in found[:n]
        if a.row.utilisation != b.row.utilisation
    ]
    text = table(HEAD, [cells(f) for f in found])
    text += f"\nMean difference {100 * sum(errors) / len(errors):.1f} points, largest {100 * max(errors):.1f}; "
    return text + f"{sum(pairs)} of {len(pairs)} pairs of rows in the published order.\n"


def main() -> None:
    wanted = sys.argv[1:]
    rows = [r for r in (*ROWS, *OTHERS, *GPUS) if not wanted or any(w in r.name for w in wanted)]
    if not wanted:
        print(section())
        return
    for row in rows:
        found = measure(row)
        print(table(HEAD, [cells(found)]))
        print(found.simulation.as_text())


if __name__ == "__main__":
    main()
