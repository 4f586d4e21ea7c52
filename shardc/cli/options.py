"""Options that commands share, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.units import parse_bytes

__all__ = [
    "AnnotateOption",
    "AnnotationsOption",
    "FileArgument",
    "JsonOption",
    "MeshOption",
    "QuietOption",
    "VerboseOption",
    "annotated",
    "given_annotations",
    "open_program",
    "parse_annotation",
    "parse_bytes",
    "parse_mesh",
    "search_text",
]

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="HLO text, MLIR text or bytecode, or a serialized jax.export.Exported.")
]
MeshOption = Annotated[
    str, typer.Option("--mesh", metavar="AXIS=N,...", help="Device mesh; resizes axes that the program already has.")
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
    Path | None, typer.Option("--annotations", metavar="FILE.toml", help="Tables \\[mesh] and \\[annotate].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write the result as JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Print more.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors on stderr.")]


_MESH = "--mesh data=2,model=4: a name and a size of 1 or more, axes separated by commas"


def parse_mesh(text: str) -> Mesh | None:
    """``data=2,model=4``; an empty text is no mesh. Names are those that `Mesh` takes. Raises `InputError`."""
    axes: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isascii() or not size.strip().isdigit() or int(size) < 1:
            raise InputError(f"{part!r} is not an axis and its size", where="--mesh", fix=_MESH)
        if name.strip() in axes:
            raise InputError(f"axis {name.strip()!r} is given twice", where="--mesh", fix="name every axis once")
        axes[name.strip()] = int(size)
    try:
        return Mesh(axes) if axes else None
    except AnnotationError as e:
        e.where = "--mesh"
        raise


def parse_annotation(text: str) -> tuple[str, str]:
    """``NAME=SPEC`` at its last equals sign: names such as ``state['a=b']`` may hold others."""
    tiles = text.find("={")
    name, equals, spec = (text[:tiles], "=", text[tiles + 1 :]) if tiles > 0 else text.rpartition("=")
    if not equals or not name.strip() or not spec.strip():
        raise InputError(
            f"{text!r} is not NAME=SPEC", where="--annotate", fix="write --annotate w1=None,model (None: not sharded)"
        )
    return name.strip(), spec.strip()


def open_program(
    file: Path, mesh: str = "", annotate: Sequence[str] | None = None, annotations: Path | None = None
) -> Any:
    """The program in ``file`` with the mesh and annotations of the command line, which win over those of the file."""
    from shardc.stages.programs import load

    specs, wanted = given_annotations(mesh, annotate, annotations)
    return annotated(load(file), specs, wanted, None if annotate else annotations)


def annotated(program: Any, specs: Mapping[str, str], mesh: Mesh | None, file: Path | None = None) -> Any:
    """``program`` with what `given_annotations` found; as it is where that is nothing. Errors name the ``file``."""
    try:
        return program.annotate(dict(specs), mesh=mesh) if specs or mesh is not None else program
    except AnnotationError as e:
        if file is not None and e.where is None:
            e.where = str(file)
        raise


def given_annotations(
    mesh: str, annotate: Sequence[str] | None, annotations: Path | None
) -> tuple[dict[str, str], Mesh | None]:
    """What the command line says about shardings, by name, and the mesh."""
    from shardc.sharding.notations.annotate import read_annotations

    wanted = parse_mesh(mesh)
    specs: dict[str, str] = {}
    if annotations is not None:
        held = read_annotations(annotations)
        wanted, specs = wanted or held.mesh, dict(held.specs)
    given = [parse_annotation(a) for a in annotate or ()]
    for name, _ in given:
        if [n for n, _ in given].count(name) > 1:
            raise AnnotationError(
                f"{name!r} is annotated twice", where="--annotate", fix="give one annotation for each name"
            )
    specs.update(given)
    return specs, wanted


def search_text(remedies: int, seconds: float) -> str:
    """What a command says before it looks for remedies."""
    costly = "most costly collective" if remedies == 1 else f"{remedies} most costly collectives"
    return f"looking for annotations that remove the {costly} (limit: {seconds:g} s)"
