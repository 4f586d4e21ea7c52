"""Options that commands share, and what they mean."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.mesh import Mesh

__all__ = [
    "AnnotateOption",
    "AnnotationsOption",
    "FileArgument",
    "JsonOption",
    "MeshOption",
    "QuietOption",
    "VerboseOption",
    "open_program",
    "parse_annotation",
    "parse_mesh",
]

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="HLO text, MLIR text or bytecode, or a serialized jax.export.Exported.")
]
MeshOption = Annotated[
    str, typer.Option("--mesh", metavar="AXIS=N,...", help="Device mesh; resizes axes that the program has already.")
]
AnnotateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--annotate",
        metavar="NAME=SPEC",
        help="Shard a parameter or value: exact name or glob; SPEC has an entry per dimension, "
        "such as None,model or data+model,?. Repeatable.",
    ),
]
AnnotationsOption = Annotated[
    Path | None, typer.Option("--annotations", metavar="FILE.toml", help="Tables [mesh] and [annotations].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write the result as JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")]


def parse_mesh(text: str) -> Mesh | None:
    """``data=2,model=4``; an empty text is no mesh. Raises `InputError`."""
    axes: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isascii() or not size.strip().isdigit() or int(size) < 1:
            raise InputError(f"{part!r} is not an axis and its size", where="--mesh", fix="--mesh data=2,model=4")
        if name.strip() in axes:
            raise InputError(f"axis {name.strip()!r} is given twice", where="--mesh")
        axes[name.strip()] = int(size)
    return Mesh(axes) if axes else None


def parse_annotation(text: str) -> tuple[str, str]:
    """``NAME=SPEC`` at its last equals sign: names such as ``state['a=b']`` may hold others."""
    name, equals, spec = text.rpartition("=")
    if not equals or not name.strip() or not spec.strip():
        raise InputError(
            f"{text!r} is not NAME=SPEC", where="--annotate", fix="--annotate w1=None,model (None: not sharded)"
        )
    return name.strip(), spec.strip()


def open_program(
    file: Path, mesh: str = "", annotate: Sequence[str] | None = None, annotations: Path | None = None
) -> Any:
    """The program in ``file`` with the mesh and annotations of the command line, which win over those of the file."""
    from shardc.launcher.stages import load

    wanted = parse_mesh(mesh)
    specs: dict[str, str] = {}
    if annotations is not None:
        from_file, specs = _read_annotations(annotations)
        wanted = wanted or from_file
    given = [parse_annotation(a) for a in annotate or ()]
    for name, _ in given:
        if [n for n, _ in given].count(name) > 1:
            raise AnnotationError(f"{name!r} is annotated twice", where="--annotate")
    specs.update(given)
    program = load(file)
    return program.annotate(specs, mesh=wanted) if specs or wanted is not None else program


def _read_annotations(path: Path) -> tuple[Mesh | None, dict[str, str]]:
    example = '[mesh]\n       data = 2\n       [annotations]\n       w1 = "None,data"'
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", where="--annotations") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise InputError(f"the annotations cannot be read: {e}", where=str(path), fix=example) from None
    unknown = sorted(set(tables) - {"mesh", "annotations"})
    if unknown:
        raise InputError(f"unknown entry {unknown[0]!r}", where=str(path), fix=example)
    axes, specs = tables.get("mesh", {}), tables.get("annotations", {})
    if not isinstance(axes, dict) or not all(type(n) is int and n >= 1 for n in axes.values()):
        raise InputError("[mesh] maps axis names to sizes", where=str(path), fix=example)
    if not isinstance(specs, dict) or not all(isinstance(s, str) for s in specs.values()):
        raise InputError("[annotations] maps names to texts", where=str(path), fix=example)
    return Mesh(axes) if axes else None, dict(specs)
