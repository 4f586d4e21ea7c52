"""A training step of a PyTorch module, before it is compiled: annotated, partitioned, explained, simulated."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.frontends.torch.train.step_graph import StepGraph, step_graph
from shardc.hlo.errors import AnnotationError, InputError
from shardc.launcher.driver.compiled import job_config
from shardc.partitioner.program import seconds_since
from shardc.stages.stages import Partitioned, Program
from shardc.torch.training import Training

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulation import Simulation

__all__ = ["TrainStep", "train_step"]


def train_step(
    module: Any,
    loss: Callable[..., Any],
    optimizer: Any,
    args: Sequence[Any],
    *,
    seed: int | None = None,
    clip_grad_norm: float | None = None,
) -> TrainStep:
    """Make one program of forward, backward and update of a PyTorch module.

    ``loss`` is called as ``loss(module, *args)`` and returns a scalar tensor, or a tuple that begins with it.
    ``optimizer`` is ``torch.optim.SGD``, ``Adam`` or ``AdamW`` over the module's parameters, which has made no step.
    PyTorch differentiates, so parameters that are frozen stay as they are. ``args`` are examples: only shapes and types
    count, and they may be on the device ``meta``.

    The program's arguments are the module's tensors under their names in ``state_dict``, the optimizer's under
    ``optimizer.exp_avg.NAME`` and the like, ``optimizer.step``, hyperparameters such as ``optimizer.lr``, then the
    arguments under their names in ``loss``. Hyperparameters are read from the optimizer at every step, so PyTorch's
    schedulers work; options that decide what is computed (``nesterov``, no momentum) are fixed.

    With a ``seed`` of 32 bits, dropout and other operators may draw random numbers: new ones in each step, the same on
    every mesh, and the same when a step is repeated from a checkpoint. They are not those of PyTorch's generators.

    ``clip_grad_norm`` is the greatest Euclidean norm of the gradients of all parameters that the optimizer has. Larger
    gradients are scaled down to it before the update, as ``torch.nn.utils.clip_grad_norm_`` does.

    Raises `EnvironmentProblem` without the extra ``torch``, `InputError` for a loss that is not a scalar, for an
    invalid seed and for a negative norm. Raises `UnsupportedError` for other optimizers, for operators that shardc
    lacks, for random numbers without a seed, and for hooks and ``autograd.Function``, whose code the step would not
    run.

    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    >>> step = shardc.torch.train_step(model, loss, optimizer, (x, y))
    >>> step.program.arg_names[-2:]
    ('x', 'y')
    """
    start = time.perf_counter()
    if seed is not None and not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}", fix="give a whole number from 0 to 2**32 - 1")
    if clip_grad_norm is not None and not clip_grad_norm >= 0:
        raise InputError(f"clip_grad_norm is {clip_grad_norm}", fix="give the greatest norm of the gradients, above 0")
    graph = step_graph(module, loss, optimizer, args, seed=seed, clip_grad_norm=clip_grad_norm)
    seconds = seconds_since("read", start)
    program = Program(graph.module, config=job_config(), seconds=seconds, content=graph.content)
    return TrainStep(program, graph, module, optimizer)


@dataclass(frozen=True)
class TrainStep:
    """A training step: ``program`` is a `Program` like all others, which `auto` and `sweep` take too.

    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    >>> step = shardc.torch.train_step(model, loss, optimizer, (x, y))
    >>> step.program.mesh is None
    True
    """

    program: Program
    graph: StepGraph
    module: Any
    optimizer: Any

    def __repr__(self) -> str:
        return f"<TrainStep of {type(self.module).__name__} with {type(self.optimizer).__name__}: {self.program!r}>"

    def annotate(self, annotations: Mapping[str, Any] | None = None, mesh: Any = None) -> TrainStep:
        """The step with shardings by name or glob, as `Program.annotate`.

        The optimizer's state of a parameter has the parameter's sharding, unless it has an annotation itself. New
        values have the sharding of the old ones. A tied parameter may have any of its names in ``state_dict()``.

        >>> split = step.annotate({"0.weight": P("model", None), "x": P("data")}, mesh={"data": 2, "model": 2})
        >>> split.program.num_devices
        4
        """
        own = _of_tensors(annotations, self.graph.states) if isinstance(annotations, Mapping) else annotations
        program = self.program.annotate(own, mesh)
        found = _shardings(program)
        slots = {
            s.name: found[s.parameter]
            for s in self.graph.slots
            if s.name not in found and s.parameter in found and s.name in program.arg_names
        }
        program = program.annotate(slots) if slots else program
        found = _shardings(program)
        results = program.module.result_names
        updated = {
            results[u.result]: found[self.graph.names[u.argument]]
            for u in self.graph.updates
            if self.graph.names[u.argument] in found
        }
        return replace(self, program=program.annotate(updated) if updated else program)

    def partition(self, **options: Any) -> Partitioned:
        """The program that every device runs; ``options`` are those of `Program.partition`.

        >>> {c["op"] for c in split.partition().report()["collectives"]}
        {'all-reduce'}
        """
        return self.program.partition(**options)

    def simulate(self, machine: str | Path | None = None, **options: Any) -> Simulation:
        """A simulated step on a machine; ``options`` are those of `Program.simulate`.

        >>> split.simulate("h100-dgx").step_seconds > 0
        True
        """
        return self.program.simulate(machine, **options)

    def compile(self, target: str = "cpu", **options: Any) -> Training:
        """Compile the step and lay the state out on this job's devices; ``options`` are those of `Program.compile`.

        In a job every rank calls it. Their modules must have equal values; the first step compares them. The state is
        taken from the module at the first step.

        >>> training = split.compile()
        >>> first, second = training(x, y), training(x, y)
        >>> bool(second < first)
        True
        """
        return Training(self.graph, self.module, self.optimizer, self.program.compile(target, **options))


def _of_tensors(annotations: Mapping[str, Any], states: Mapping[str, str]) -> dict[str, Any]:
    """The annotations by names of tensors: ``states`` has the tensor of each name in ``state_dict()``."""
    found: dict[str, Any] = {}
    for name, value in annotations.items():
        tensor = states.get(name, name)
        if found.setdefault(tensor, value) != value:
            what = f"{name} is the tensor {tensor}, which has another sharding"
            raise AnnotationError(what, where="annotate", fix="annotate one of the two names")
    return found


def _shardings(program: Program) -> dict[str, Any]:
    """The arguments that have a sharding."""
    module = program.module
    return {n: p.sharding for n, p in zip(program.arg_names, module.parameters, strict=True) if p.sharding is not None}
