"""An order at the workers: asked for as a whole, or in pieces with the help of whoever is free."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from shardc.launcher.executors.ends import stopped, too_slow
from shardc.launcher.executors.limits import Limits
from shardc.launcher.executors.running import Workers
from shardc.launcher.executors.tasks import Progress
from shardc.service.scheduler.open_jobs import OpenJobs
from shardc.service.scheduler.queue import Making
from shardc.service.scheduler.run_task import payload_of
from shardc.service.scheduler.shared_orders import WEATHER, Shared
from shardc.service.store.store import Store
from shardc.service.workers.package import unpack
from shardc.service.workers.pieces import PIECE_FILE, Found, Part, Piece, Pieces, Spent

__all__ = ["Carrying"]


class Carrying:
    """Has orders carried out by ``workers``, each within ``limits``: seconds of the whole order, however many workers
    it has, and memory of each process."""

    def __init__(self, jobs: OpenJobs, store: Store, workers: Workers, limits: Limits) -> None:
        self._jobs, self._store, self._workers, self._limits = jobs, store, workers, limits

    def carry_out(self, making: Making, order: str) -> tuple[dict[str, bytes], dict[str, Any]]:
        """The files that the text ``order`` asks for, and facts. Raises what its task raises.

        Where the task wants pieces done, this thread does one after the other, and so does every hand that finds
        nobody in the line.
        """
        shared = Shared(making, order, time.monotonic() + self._limits.seconds)
        part = Part(workers=self._workers.count)
        hear = partial(self._jobs.hear, making)
        files, facts = unpack(self._ask(shared, part, making.programs, self._limits, hear))
        wanted = Pieces.wanted_by(files)
        if wanted is None:
            return files, facts
        with self._jobs.sharing(shared):
            while wanted is not None:
                found = {**part.found, **self._done(shared, wanted)}
                part = Part(notes=wanted.notes, found=found, spent=wanted.spent)
                files, facts = unpack(self._ask_again(shared, part))
                wanted = Pieces.wanted_by(files)
        return files, facts

    def do(self, shared: Shared, piece: Piece) -> None:
        """Have the ``piece`` done that was taken; what comes of it is for the hand that has the order."""
        making = shared.making
        try:
            answer = self._ask(shared, Part(piece=piece.text), [piece.program], self._left(shared))
            files, facts = unpack(answer)
            spent = Spent(facts["seconds"], tuple(facts["warnings"]))
            put = partial(shared.put, piece, Found(files[PIECE_FILE].decode(), spent=spent))
        except Exception as e:
            put = partial(shared.fail, piece, e)
        with self._jobs.turn:
            if time.monotonic() >= shared.until:
                shared.give_up(too_slow("order", self._limits))
            else:
                put()
                self._jobs.hear(making, shared.progress)
            others = list(making.running) if shared.error is not None else []
            self._jobs.turn.notify_all()
        for running in others:
            running.stop()

    def _done(self, shared: Shared, wanted: Pieces) -> dict[str, Found]:
        """What came of the pieces, when all are done."""
        turn = self._jobs.turn
        with turn:
            shared.want(wanted)
            self._jobs.hear(shared.making, shared.progress)
            turn.notify_all()
        while (piece := self._take(shared)) is not None:
            self.do(shared, piece)
        if shared.error is not None:
            raise shared.error
        if shared.making.unwanted:
            raise stopped("order")
        return shared.found(wanted)

    def _take(self, shared: Shared) -> Piece | None:
        """The next piece; None when all are done. One that another hand has may come back."""
        with self._jobs.turn:
            while (piece := shared.take()) is None and shared.going:
                self._jobs.turn.wait()
            return piece

    def _ask_again(self, shared: Shared, part: Part) -> bytes:
        """The order's task, with what was found; a worker that is killed now must not cost it all."""
        try:
            return self._ask(shared, part, (), self._left(shared))
        except WEATHER:
            if shared.making.unwanted:
                raise
            return self._ask(shared, part, (), self._left(shared))

    def _left(self, shared: Shared) -> Limits:
        """What a worker may take now. Raises `RunError` when the time of the order is over."""
        seconds = shared.until - time.monotonic()
        if seconds <= 0:
            raise too_slow("order", self._limits)
        return replace(self._limits, seconds=seconds)

    def _ask(
        self, shared: Shared, part: Part, programs: Iterable[str], limits: Limits, progress: Progress | None = None
    ) -> bytes:
        """A worker's answer."""
        making, payload = shared.making, payload_of(shared.order, programs, self._store, part)
        running = self._workers.submit("order", payload, limits, progress)
        del payload
        with self._jobs.lock:
            making.running.append(running)
        if making.unwanted or shared.error is not None:
            running.stop()
        try:
            return running.future.result()
        finally:
            with self._jobs.lock:
                making.running.remove(running)
