"""Checkpoints that are written while the program continues: shards are copied, and a thread writes the copies.

The thread never communicates, since the program does. With one process it completes the checkpoint too. In a job the
next call on all ranks, `AsyncCheckpointer.save` or `AsyncCheckpointer.wait`, completes it.
"""

from __future__ import annotations

import logging
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from shardc.hlo.errors import InputError
from shardc.launcher.checkpoint.save import CheckpointSaving, begin_saving, check_keep

__all__ = ["AsyncCheckpointer"]


class AsyncCheckpointer:
    """Saves checkpoints in ``folder`` as `save_checkpoint` does, while the program continues.

    ``keep`` and ``overwrite`` are those of `save_checkpoint`. Use it in a ``with``, or call `wait` at the end. A rank
    needs additional memory for a copy of what it writes.

    >>> with shardc.AsyncCheckpointer("background", keep=3) as checkpointer:
    ...     path = checkpointer.save({"w": np.ones(4)}, step=1)
    >>> str(path), shardc.load_checkpoint("background").step
    ('background/step-00000001', 1)
    """

    def __init__(self, folder: str | Path, *, keep: int | None = None, overwrite: bool = False) -> None:
        check_keep(keep)
        self.folder = Path(folder)
        self.keep = keep
        self.overwrite = overwrite
        self._writer = ThreadPoolExecutor(1, "shardc-checkpoint")
        self._closed = False
        self._pending: tuple[CheckpointSaving, Future[Any]] | None = None
        #: What nobody has waited for yet, of a job.
        self._incomplete: list[Path] = []
        weakref.finalize(self, _warn_of_incomplete, self._incomplete)

    def save(self, tree: Any, *, step: int, metadata: Any = None) -> Path:
        """Copy ``tree``, start to write it, and return the path that it will have. In a job every rank must call it.

        The arrays may be donated or written to afterwards. The call first waits for the previous save. The checkpoint
        appears when all of it is on disk; in a job, with the next `save` or `wait`.

        Raises the errors of `save_checkpoint`, the error of a previous save that failed, and `InputError` after the end
        of the ``with``.

        >>> with shardc.AsyncCheckpointer("background", overwrite=True) as checkpointer:
        ...     str(checkpointer.save({"w": np.ones(4)}, step=2))
        'background/step-00000002'
        """
        if self._closed:
            raise InputError("the checkpointer is closed", fix="save inside its with statement, or make a new one")
        self.wait()
        saving = begin_saving(
            self.folder, tree, step=step, keep=self.keep, overwrite=self.overwrite, metadata=metadata
        ).copied()
        if saving.transport.process_count == 1:
            self._pending = saving, self._writer.submit(saving.finish, saving.write)
        else:
            self._pending = saving, self._writer.submit(saving.write)
            if saving.transport.process_index == 0:
                self._incomplete.append(saving.target)
        return saving.target

    def wait(self) -> None:
        """Wait until the last save is on disk, and complete it. In a job every rank must call it.

        Raises `InputError` and `RunError` for a save that failed; when one rank fails, all raise.

        >>> shardc.AsyncCheckpointer("background").wait()
        """
        if self._pending is None:
            return
        (saving, written), self._pending = self._pending, None
        self._incomplete.clear()
        if saving.transport.process_count == 1:
            written.result()
        else:
            saving.finish(written.result)

    def __enter__(self) -> AsyncCheckpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait. After an error only this rank's thread is waited for: the other ranks may be elsewhere."""
        if kind is None:
            self.wait()
        self._closed = True
        self._writer.shutdown()


def _warn_of_incomplete(paths: list[Path]) -> None:
    """At the end of the program, or of the checkpointer."""
    for path in paths:
        text = "%s was written, but not completed: in a job call wait() at the end, or use AsyncCheckpointer in a with"
        logging.getLogger("shardc").warning(text, path)
