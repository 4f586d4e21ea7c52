"""A compiled training step with its state, which stays where the program takes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.frontends.torch.element_types import as_numpy, as_tensor
from shardc.frontends.torch.packages import require_torch
from shardc.frontends.torch.signature import SAME_MODULES, check_input, present_tensor
from shardc.frontends.torch.structure import leaves_of_call
from shardc.frontends.torch.train.hooks import refuse_hooks
from shardc.frontends.torch.train.joint import Numbered
from shardc.frontends.torch.train.step_graph import SEED, STEP, StepGraph
from shardc.hlo.errors import InputError
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.layout import ArrayLayout, Region
from shardc.launcher.arrays.make_arrays import array_of
from shardc.launcher.arrays.pieces import Piece, Whole
from shardc.launcher.arrays.same_values import SameValues
from shardc.launcher.checkpoint.foreign import load_safetensors, names_in_safetensors
from shardc.launcher.checkpoint.load import load_checkpoint
from shardc.launcher.checkpoint.save import save_checkpoint
from shardc.launcher.driver.compiled import Compiled
from shardc.launcher.jobs.job import job_transport

__all__ = ["Training"]


class Training:
    """A compiled training step: a call makes one step, and the state stays split over the devices.

    ``compiled`` is the program. ``arrays`` has the state by the names of the program's arguments: parameters, buffers,
    and what the optimizer keeps. The module's own tensors keep their values until `update_module` writes to them.
    Ranks of a job compare the values that the state begins with: `InputError` where they differ.

    >>> step = shardc.torch.train_step(model, loss, torch.optim.AdamW(model.parameters()), (x, y))
    >>> training = step.annotate({"0.weight": P("model", None)}, mesh={"model": 2}).compile()
    >>> losses = [training(x, y) for _ in range(2)]
    >>> training.arrays["0.weight"]
    shardc.Array(f32[32,16], [{model}, {}])
    """

    def __init__(self, graph: StepGraph, module: Any, optimizer: Any, compiled: Compiled) -> None:
        self._torch = require_torch()
        self._graph, self._module, self._optimizer = graph, module, optimizer
        refuse_hooks(self._torch, module, optimizer)
        self.compiled = compiled
        executable = compiled.share()
        self._layouts = {
            graph.names[flat]: ArrayLayout.of(a, executable.num_devices)
            for flat, a in zip(graph.kept, executable.arguments, strict=True)
        }
        self._state = [*graph.tensors, *(s.name for s in graph.slots), STEP]
        self._arrays: dict[str, Array] = {}
        self._same = SameValues(job_transport(compiled.config))

    def __call__(self, *args: Any) -> Any:
        """Make one step on a batch. Return what ``loss`` returns, as tensors, from before the update."""
        graph, torch = self._graph, self._torch
        self._agree("a training step")
        values: dict[str, Any] = dict(self._arrays)
        several = len(graph.groups) > 1
        for group in graph.groups:
            for name, value in group.values(self._optimizer).items():
                values[f"optimizer.{f'{group.number}.' if several else ''}{name}"] = np.float64(value)
        if graph.seed is not None:
            values[SEED] = np.uint32(graph.seed)
        values.update(self._inputs(args))
        results = self.compiled.run([values[graph.names[flat]] for flat in graph.kept])
        self._optimizer._opt_called = True  # as `optimizer.step` marks a step: schedulers warn without it
        for update in graph.updates:
            name = graph.names[update.argument]
            if name in self._arrays:
                self._arrays[name] = results[update.result]
        loss, *others = (as_tensor(torch, r) for r in results[: len(graph.joint.results)])
        if not graph.joint.rest:
            return loss
        leaves = [others[r.number] if isinstance(r, Numbered) else r for r in graph.joint.rest]
        return (loss, *torch.utils._pytree.tree_unflatten(leaves, graph.joint.rest_spec))

    def _inputs(self, args: tuple[Any, ...]) -> dict[str, Any]:
        names = [i.name for i in self._graph.inputs]
        leaves = leaves_of_call(self._torch, args, self._graph.joint.in_spec, names, 1, "call of a training step")
        out = {}
        for leaf, wanted in zip(leaves, self._graph.inputs, strict=True):
            value = check_input(self._torch, leaf, wanted)
            if value is not None:
                out[wanted.name] = as_numpy(value, wanted.name) if isinstance(value, self._torch.Tensor) else value
        return out

    @property
    def arrays(self) -> dict[str, Array]:
        self._complete()
        return dict(self._arrays)

    def _complete(self) -> None:
        """Lay out what is not there yet: the module's tensors as they are, zeros for the optimizer."""
        for name in self._state:
            layout = self._layouts.get(name)
            if layout is None or name in self._arrays:
                continue
            if name not in self._graph.tensors:
                self._arrays[name] = array_of(layout, _Zeros(layout.dtype.numpy), copy=True)
                continue
            tensor = self._tensor(name)
            if tensor.is_meta and name not in self._graph.states.values():
                raise InputError(
                    "the buffer is on the meta device, and it is not persistent, so no state has its values",
                    where=name,
                    fix="give the module this buffer with values, made on the CPU",
                )
            self._lay_out(name, as_numpy(tensor, name))

    def _tensor(self, name: str) -> Any:
        """The module's tensor: the one that it has now, where it has one of this name."""
        return present_tensor(self._torch, self._module, name, self._graph.tensors[name])

    def _lay_out(self, name: str, value: NDArray[Any]) -> None:
        """Make a whole value the one of ``name``. The ranks have to compare it."""
        self._arrays[name] = array_of(self._layouts[name], Whole(value), copy=True)
        self._same.add(name, value, SAME_MODULES)

    def _agree(self, doing: str) -> dict[str, Array]:
        """The whole state, once the ranks have compared what they have given; all of them call it."""
        arrays = self.arrays
        self._same.compare(doing)
        return arrays

    def state_dict(self) -> dict[str, Any]:
        """The module's state as whole tensors on every rank, as ``module.state_dict()`` has it; all ranks call it.

        >>> model.load_state_dict(training.state_dict())
        <All keys matched successfully>
        """
        arrays = self._agree("the state of a training")
        whole: dict[str, Any] = {}
        out = {}
        for name, value in self._module.state_dict().items():
            own = self._graph.states.get(name)
            if own is None or own not in arrays:
                out[name] = value.clone() if isinstance(value, self._torch.Tensor) else value
                continue
            if own not in whole:
                whole[own] = as_tensor(self._torch, arrays[own]).clone()
            out[name] = whole[own]
        return out

    def optimizer_state_dict(self) -> dict[str, Any]:
        """The optimizer's state, as ``optimizer.state_dict()`` has it; all ranks call it.

        >>> torch.optim.AdamW(model.parameters()).load_state_dict(training.optimizer_state_dict())
        """
        torch, arrays = self._torch, self._agree("the state of an optimizer")
        made = self._optimizer.state_dict()
        numbers = {id(p): k for k, p in enumerate(p for g in self._optimizer.param_groups for p in g["params"])}
        steps = int(np.asarray(arrays[STEP])) if STEP in arrays else 0
        state: dict[int, dict[str, Any]] = {}
        for slot in self._graph.slots if steps else ():
            entry = state.setdefault(numbers[id(self._graph.tensors[slot.parameter])], {})
            if type(self._optimizer).__name__ != "SGD":
                entry.setdefault("step", torch.tensor(float(steps)))
            entry[slot.slot] = as_tensor(torch, arrays[slot.name]).clone()
        return {"state": state, "param_groups": made["param_groups"]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the module's state from tensors by name; names that the step does not use are ignored.

        Buffers that are not persistent keep their values. A tensor that the module has by several names may have any of
        them.

        >>> training.load_state_dict(model.state_dict())
        """
        for name, own in self._found_in(state, "the state has no", "").items():
            self._read(own, state[name], name)

    def load_optimizer_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the optimizer's state from what ``optimizer.state_dict()`` returned.

        >>> training.load_optimizer_state_dict(training.optimizer_state_dict())
        """
        if not isinstance(state, Mapping) or "state" not in state:
            raise InputError(
                "the state of an optimizer is a dict with state and param_groups",
                where="load_optimizer_state_dict",
                fix="pass what optimizer.state_dict() or training.optimizer_state_dict() returned",
            )
        entries, steps = state["state"], 0
        numbers = {id(p): k for k, p in enumerate(p for g in self._optimizer.param_groups for p in g["params"])}
        found: dict[str, Any] = {}
        for slot in self._graph.slots:
            entry = entries.get(numbers[id(self._graph.tensors[slot.parameter])])
            if entry is not None and entry.get(slot.slot) is not None:
                found[slot.name] = entry[slot.slot]
                steps = max(steps, int(entry.get("step", 1)))
        for name, tensor in found.items():
            if name in self._layouts:
                self._read(name, tensor, name)
        if STEP in self._layouts:
            self._lay_out(STEP, np.asarray(steps, np.int64))

    def _found_in(self, available: Collection[str], who: str, where: str) -> dict[str, str]:
        """Which of the ``available`` names has each tensor of the module's state that the step takes.

        InputError, which begins with ``who``, where one has no name among them.
        """
        names: dict[str, list[str]] = {}
        for name, own in self._graph.states.items():
            if own in self._layouts:
                names.setdefault(own, []).append(name)
        out = {}
        for own, given in names.items():
            found = next((n for n in given if n in available), None)
            if found is None:
                raise InputError(
                    f"{who} {own}", where=where or None, fix="pass the state of a module of the same class"
                )
            out[found] = own
        return out

    def _read(self, name: str, tensor: Any, title: str) -> None:
        """Take the value of ``name`` from a tensor that is called ``title``."""
        if not isinstance(tensor, self._torch.Tensor):
            raise InputError(f"{kind_text(tensor)} is not a tensor", where=title)
        value = as_numpy(tensor, title)
        self._check(name, value.shape, value.dtype, title)
        self._lay_out(name, value)

    def _check(self, name: str, dims: tuple[int, ...], dtype: Any, title: str) -> None:
        layout = self._layouts[name]
        if tuple(dims) != layout.dims or dtype != layout.dtype.numpy:
            raise InputError(
                f"the tensor is {dtype}{list(dims)}, but the step takes {layout.dtype.numpy}{list(layout.dims)}",
                where=title,
            )

    def update_module(self) -> None:
        """Write the state into the module's own tensors; all ranks call it.

        >>> training.update_module()
        """
        arrays = self._agree("an update of the module")
        with self._torch.no_grad():
            for name in self._graph.tensors:
                if name in arrays:
                    self._tensor(name).copy_(as_tensor(self._torch, arrays[name]))

    def save(self, folder: str | Path, **options: Any) -> Path:
        """Write the state as a sharded checkpoint, every rank its own shards; ``options`` are those of
        `save_checkpoint`; default of ``step``: the number of steps made.

        >>> str(training.save("trained-torch"))
        'trained-torch/step-00000002'
        """
        arrays = self._agree("a checkpoint")
        steps = int(np.asarray(arrays[STEP])) if STEP in arrays else 0
        return save_checkpoint(folder, arrays, **{"step": steps, **options})

    def load(self, path: str | Path) -> int:
        """Read what `save` wrote, every rank the parts that its devices hold, and return the number of steps.

        >>> path = training.save("kept-torch")
        >>> training.load("kept-torch")
        2
        """
        like = {n: _Like(layout) for n in self._state if (layout := self._layouts.get(n)) is not None}
        shardings = {n: layout.sharding for n, layout in self._layouts.items() if n in like}
        found = load_checkpoint(path, like, shardings=shardings)
        self._take(found.tree)
        return found.step

    def load_safetensors(self, path: str | Path) -> None:
        """Take the module's state from safetensors files, such as those of a published model.

        Every rank reads the parts that its devices hold. The module may be on the device ``meta``. Buffers that are not
        persistent keep their values, as in `load_state_dict`.

        >>> from safetensors.torch import save_file
        >>> save_file(model.state_dict(), "model-torch.safetensors")
        >>> training.load_safetensors("model-torch.safetensors")
        """
        names = self._found_in(names_in_safetensors(path), "the files contain no tensor", str(path))
        shardings = {n: s for n, own in names.items() if (s := self._layouts[own].sharding) is not None}
        found = load_safetensors(path, shardings)
        for name, own in names.items():
            self._check(own, found[name].shape, found[name].dtype, f"{name} of {path}")
        self._take({own: found[name] for name, own in names.items()})

    def _take(self, tree: Mapping[str, Any]) -> None:
        """Take values that each rank has read from the same files."""
        for name, value in tree.items():
            given = value if isinstance(value, Array) else array_of(self._layouts[name], Whole(np.asarray(value)))
            self._arrays[name] = given
            self._same.forget(name)


@dataclass(frozen=True, slots=True)
class _Zeros:
    """A source of zeros."""

    dtype: np.dtype[Any]

    def pieces(self, region: Region) -> Iterator[Piece]:
        yield Piece(region, np.zeros([s.stop - s.start for s in region], self.dtype))


class _Like:
    """Shape and type of an argument, as `load_checkpoint` takes them."""

    def __init__(self, layout: ArrayLayout) -> None:
        self.shape, self.dtype = layout.dims, layout.dtype.numpy
