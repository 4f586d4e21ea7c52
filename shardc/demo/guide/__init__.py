"""The files that every guide uses: `step.py`, a training step in JAX, and `step.mlir`, the same as StableHLO.

Start reading at `step.py`; ``python -m shardc.demo.guide`` makes `step.mlir` of it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from shardc.hlo.errors import InputError
from shardc.hlo.files import make_folder
from shardc.launcher.run.output_files import atomic_output

__all__ = ["FILES", "write_guide_files"]

FILES = ("step.py", "step.mlir")


def write_guide_files(folder: Path, overwrite: bool = False) -> list[Path]:
    """Copies of `FILES` in ``folder``, which is made.

    Raises `InputError` where ``folder`` is a file, or a file with other content is there, unless ``overwrite``
    replaces it.
    """
    in_the_way = next((p for p in (folder, *folder.parents) if p.exists() and not p.is_dir()), None)
    if in_the_way is not None:
        raise InputError(f"{in_the_way} is a file", where="--write", fix="name a folder, such as --write .")
    contents = {folder / name: resources.files(__package__).joinpath(name).read_bytes() for name in FILES}
    changed = [path for path, data in contents.items() if path.is_file() and path.read_bytes() != data]
    if changed and not overwrite:
        raise InputError(
            f"{' and '.join(map(str, changed))} would be overwritten, but you changed the content",
            where="--write",
            fix="write to another folder, or replace your changes with --overwrite",
        )
    make_folder(folder, "--write")
    for path, data in contents.items():
        with atomic_output(path, replaces=lambda _: True) as file:
            file.write(data)
    return list(contents)
