"""The environment of children: what programs need to run at all, and nothing that is secret."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["child_environment"]

#: Where programs, libraries and the user's folders are, and how text is written.
_KEPT = ("PATH", "HOME", "USER", "LANG", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "JAX_PLATFORMS")
_KEPT_FAMILIES = ("LC_", "XDG_", "OMP_", "OPENBLAS_", "MKL_")


def child_environment(given: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a child: what is on the list, and ``given``, which has the last word.

    Tokens, credentials and shardc's own settings are not on the list, nor is what launchers of MPI jobs say: a child
    is no rank. Children work side by side, so libraries get one thread each, and JAX, which reads programs, the CPU.
    """
    kept = {k: v for k, v in environ.items() if k in _KEPT or k.startswith(_KEPT_FAMILIES)}
    defaults = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**defaults, "JAX_PLATFORMS": "cpu", **kept, **given}
