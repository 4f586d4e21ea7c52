"""Plain files of safetensors, such as models from elsewhere: read with a sharding per name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from shardc.collectives.call.transport import Transport
from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.assemble import block_of
from shardc.launcher.arrays.make_arrays import array_of
from shardc.launcher.arrays.pieces import Whole
from shardc.launcher.arrays.placement import as_sharding, layout_of
from shardc.launcher.checkpoint.files import TensorFile
from shardc.launcher.checkpoint.together import Together
from shardc.launcher.driver.compiled import job_config
from shardc.launcher.jobs.job import job_transport

__all__ = ["load_safetensors", "names_in_safetensors"]

#: What lists the files of a model that is kept in several.
_WEIGHT_MAP = "*.safetensors.index.json"
_FIX = "name a safetensors file, or download the model again"


def load_safetensors(
    path: str | Path, shardings: Mapping[str, Any] | None = None, *, mesh: Any = None, names: str = "*"
) -> dict[str, Any]:
    """Load the tensors of a safetensors file, or of all files of a model in a folder, by name.

    ``shardings`` maps names and globs to shardings in the forms of `array`; names come before globs, globs in their
    order. A tensor that no pattern matches is replicated over ``mesh``; without a mesh, it is a NumPy array. ``names``
    is a glob of the tensors to load. In a job every rank must call it, and reads only its own parts.

    Raises `InputError` for files that are damaged or not safetensors, for names that occur twice, and for ``names``
    that match nothing. Raises `AnnotationError` for a pattern that matches no tensor.

    >>> from safetensors.numpy import save_file
    >>> save_file({"0.q_proj.weight": np.ones((4, 4), np.float32)}, "model.safetensors")
    >>> shardc.load_safetensors("model.safetensors", {"*.q_proj.weight": P("model")}, mesh=mesh)
    {'0.q_proj.weight': shardc.Array(f32[4,4], [{model}, {}])}
    """
    transport = job_transport(job_config())
    out: dict[str, Any] = {}
    files: list[Path] = []
    if shardings is not None and not isinstance(shardings, Mapping):
        fix = 'map names or globs of tensors to shardings: {"*": P("model")}'
        raise AnnotationError(f"shardings= is {kind_text(shardings)}, not a dict", fix=fix)
    given = dict(shardings or {})

    def find() -> None:
        if not isinstance(names, str):
            fix = 'give a text such as names="layers.0.*", or omit it'
            raise InputError(f"names= is one glob, not {kind_text(names)}", fix=fix)
        files.extend(_files(Path(path)))

    Together(transport).do("finding safetensors", find)

    def read() -> None:
        found = _tensors(files)
        unused = [p for p in given if not any(n == p or fnmatchcase(n, p) for n in found)]
        if unused:
            raise AnnotationError(
                f"no tensor is called {unused[0]!r}", where=str(path), fix=f"the tensors are {_some(sorted(found))}"
            )
        wanted = {n: f for n, f in sorted(found.items()) if fnmatchcase(n, names)}
        if found and not wanted:
            raise InputError(
                f"no tensor matches names={names!r}", where=str(path), fix=f"the tensors are {_some(sorted(found))}"
            )
        out.update((n, _tensor(f, n, _sharding_of(n, given), mesh, transport)) for n, f in wanted.items())

    nbytes = sum(f.stat().st_size for f in files if f.is_file())
    Together(transport, nbytes).do("reading safetensors", read)
    return out


def names_in_safetensors(path: str | Path) -> frozenset[str]:
    """The names of the tensors in a safetensors file, or in all files of a model in a folder; all ranks call it."""
    transport = job_transport(job_config())
    return frozenset(Together(transport).do("finding safetensors", lambda: _tensors(_files(Path(path))))[0])


def _sharding_of(name: str, shardings: Mapping[str, Any]) -> Any:
    if name in shardings:
        return shardings[name]
    return next((s for pattern, s in shardings.items() if fnmatchcase(name, pattern)), None)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _tensors(files: Sequence[Path]) -> dict[str, TensorFile]:
    """Which file each tensor is in."""
    out: dict[str, TensorFile] = {}
    for file in (TensorFile(path, _FIX) for path in files):
        for name in file.keys:
            if name in out:
                raise InputError(f"two files contain the tensor {name}", where=f"{out[name].path}, {file.path}")
            out[name] = file
    return out


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    maps = sorted(path.glob(_WEIGHT_MAP))
    if maps:
        try:
            named = json.loads(maps[0].read_text(encoding="utf-8"))["weight_map"].values()
        except (ValueError, KeyError, AttributeError, TypeError) as e:
            raise InputError(f"the list of files cannot be read: {e!r}", where=str(maps[0])) from None
        return [path / name for name in sorted(set(named))]
    found = sorted(path.glob("*.safetensors"))
    if not found:
        raise InputError(
            f"{path} is neither a file nor a folder with safetensors files", fix="give a file or its folder"
        )
    return found


def _tensor(file: TensorFile, name: str, given: Any, mesh: Any, transport: Transport) -> Any:
    dtype, dims = file.dtype(name), file.shape(name)
    sharding = as_sharding(given, len(dims), mesh, name)
    layout = replace(layout_of(dims, dtype, sharding), name=name)
    source = Whole(file.read(name, dtype, dims))
    if sharding is not None:
        return array_of(layout, source, copy=True, transport=transport)
    return layout.typed(block_of(layout, (0,) * len(dims), source, transport.empty, copy=True)[0])
