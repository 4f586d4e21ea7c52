"""Plans of ``torch.distributed`` as annotations: tensor parallel styles, ``fully_shard``, placements of DTensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.units import count_text, kind_text
from shardc.sharding.notations.partition_spec import P, PartitionSpec

__all__ = ["fully_shard", "parallelize_module", "spec_of_placements"]

#: Style -> kind of module -> the spec of its weight, where "axis" is the mesh axis, and whether the bias is split.
_STYLES: Mapping[str, Mapping[str, tuple[tuple[str | None, ...], bool]]] = {
    "ColwiseParallel": {"Linear": (("axis", None), True), "Embedding": ((None, "axis"), False)},
    "RowwiseParallel": {"Linear": ((None, "axis"), False), "Embedding": (("axis", None), False)},
}


def parallelize_module(module: Any, axis: str, plan: Mapping[str, Any]) -> dict[str, PartitionSpec]:
    """Return the annotations that correspond to a plan of ``torch.distributed.tensor.parallel.parallelize_module``.

    ``plan`` maps names of submodules, or globs, to styles: PyTorch's ``ColwiseParallel``, ``RowwiseParallel`` or
    ``SequenceParallel``, or their names. ``axis`` is the axis of the mesh. A weight by columns is ``P(axis, None)``,
    since PyTorch keeps ``[out, in]``. Parameters of sequence parallel modules are whole. Layouts of inputs and outputs
    follow by propagation, so those that a style was given are not read.

    Raises `UnsupportedError` for other styles and modules, `AnnotationError` for names without a module.

    >>> shardc.torch.parallelize_module(model, "model", {"0": "ColwiseParallel", "2": "RowwiseParallel"})
    {'0.weight': P('model', None), '0.bias': P('model'), '2.weight': P(None, 'model'), '2.bias': P()}
    """
    modules = dict(module.named_modules())
    out: dict[str, PartitionSpec] = {}
    for pattern, style in plan.items():
        found = [n for n in modules if n == pattern] or [n for n in modules if fnmatchcase(n, pattern)]
        if not found:
            raise AnnotationError(f"no module is called {pattern!r}", fix="use a name of module.named_modules()")
        for name in found:
            out.update({f"{name}.{k}": v for k, v in _of_style(modules[name], name, axis, style).items()})
    return out


def _of_style(module: Any, name: str, axis: str, style: Any) -> dict[str, PartitionSpec]:
    title = style if isinstance(style, str) else type(style).__name__
    own = dict(module.named_parameters(recurse=False))
    if title == "SequenceParallel":
        return {n: P() for n in own}
    if title not in _STYLES:
        raise UnsupportedError(
            f"the style {title} is not supported",
            where=name,
            fix="use ColwiseParallel, RowwiseParallel or SequenceParallel",
        )
    kind = next((k.__name__ for k in type(module).__mro__ if k.__name__ in _STYLES[title]), None)
    if kind is None:
        raise UnsupportedError(
            f"{title} is not supported for {kind_text(module)}",
            where=name,
            fix="use it for torch.nn.Linear and Embedding",
        )
    weight, bias = _STYLES[title][kind]
    specs = {"weight": P(*(axis if entry else None for entry in weight)), "bias": P(axis) if bias else P()}
    return {n: specs[n] for n in own}


def fully_shard(module: Any, axis: str, specs: Mapping[str, PartitionSpec] | None = None) -> dict[str, PartitionSpec]:
    """Return the annotations that correspond to ``torch.distributed.fsdp.fully_shard``: parameters split along
    dimension 0.

    ``specs`` are annotations that are there already, such as those of `parallelize_module`: a dimension 0 that they
    split is split further. Sizes need not be multiples of the axis. Scalars stay whole. Raises `AnnotationError` for a
    parameter that ``axis`` splits already.

    >>> shardc.torch.fully_shard(model[:1], "data", {"0.weight": P("model", None)})
    {'0.weight': P(('model', 'data'), None), '0.bias': P('data')}
    """
    given = dict(specs or {})
    return {n: _split_further(n, given.get(n), axis) if p.ndim else P() for n, p in module.named_parameters()}


def _split_further(name: str, spec: PartitionSpec | None, axis: str) -> PartitionSpec:
    first, *rest = spec or (None,)
    if any(axis == entry or (isinstance(entry, tuple) and axis in entry) for entry in (first, *rest)):
        raise AnnotationError(
            f"the parameter is split over {axis} already: {spec}", where=name, fix="give another axis of the mesh"
        )
    if first is None:
        return P(axis, *rest)
    return P((*(first if isinstance(first, tuple) else (first,)), axis), *rest)


def spec_of_placements(placements: Sequence[Any], axes: Sequence[str], rank: int) -> PartitionSpec:
    """Return the annotation that corresponds to the placements of a DTensor, one for each of the mesh's ``axes``.

    Placements are ``torch.distributed.tensor.Shard`` and ``Replicate``; ``rank`` is the number of dimensions. Raises
    `UnsupportedError` for ``Partial``, which an argument cannot be, and for other placements.

    >>> from torch.distributed.tensor import Replicate, Shard
    >>> shardc.torch.spec_of_placements((Shard(1), Replicate()), ("model", "data"), 2)
    P(None, 'model')
    """
    if len(placements) != len(axes):
        raise AnnotationError(
            f"{len(placements)} placements were given for {count_text(len(axes), 'axis', 'axes')} of the mesh",
            fix="give one placement for each axis",
        )
    split: list[tuple[str, ...]] = [()] * rank
    for placement, axis in zip(placements, axes, strict=True):
        kind = type(placement).__name__
        if kind == "Shard":
            if not -rank <= placement.dim < rank:
                raise AnnotationError(f"{placement} does not fit a tensor of {count_text(rank, 'dimension')}")
            split[placement.dim] = (*split[placement.dim], axis)
        elif kind != "Replicate":
            raise UnsupportedError(
                f"an argument cannot have the placement {kind}",
                fix="redistribute it to Shard or Replicate first" if kind == "Partial" else "use Shard or Replicate",
            )
    while split and not split[-1]:
        split.pop()
    return P(*(None if not s else s[0] if len(s) == 1 else s for s in split))
