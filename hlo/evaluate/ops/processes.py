"""NumPy meaning: what passes between processes and to the host, and programs that run side by side.

Sends and receives meet in a channel, which is a queue: what is sent first is received first. Host transfers use it
too, so whoever receives on the channel stands for the host. An infeed takes from the interpreter's queue; what is
written to an outfeed nobody reads.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from shardc.hlo.errors import RunError, ShardcError
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning, lockstep
from shardc.hlo.evaluate.values import Value
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.lapack import attributes_of
from shardc.hlo.ir.participants import transfer_pairs

__all__ = ["ROWS", "run_processes"]

Operands = Sequence[Sequence[Value]]


class _Mailboxes:
    """Channels of one run. A receiver waits until something comes, or until it is certain that nothing will."""

    def __init__(self) -> None:
        self.queues: defaultdict[Hashable, deque[Value]] = defaultdict(deque)
        self.changed = threading.Condition()
        self.running = 1
        self.waiting: dict[int, Hashable] = {}

    def put(self, channel: Hashable, value: Value) -> None:
        with self.changed:
            self.queues[channel].append(value)
            self.changed.notify_all()

    def take(self, channel: Hashable) -> Value:
        """The next value; LookupError when all that run wait for something that nobody has sent."""
        me = threading.get_ident()
        with self.changed:
            self.waiting[me] = channel
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.queues[channel] or self._stuck())
            del self.waiting[me]
            return self.queues[channel].popleft() if self.queues[channel] else self._fail()

    @staticmethod
    def _fail() -> Value:
        raise LookupError

    def _stuck(self) -> bool:
        return len(self.waiting) >= self.running and not any(self.queues[c] for c in self.waiting.values())

    @contextmanager
    def participant(self) -> Iterator[None]:
        """Around what runs beside others; its end may leave the others waiting in vain."""
        try:
            yield
        finally:
            with self.changed:
                self.running -= 1
                self.changed.notify_all()


def _mailboxes(m: Interpreter) -> _Mailboxes:
    found: _Mailboxes = m.memo.setdefault("mailboxes", _Mailboxes())
    return found


def _targets(i: Instruction) -> dict[int, int] | None:
    """Which device sends to which, where the instruction says so."""
    pairs = transfer_pairs(i)
    return None if pairs is None else dict(pairs)


def _send(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    channel, targets = i.attrs.get("channel_id"), _targets(i)
    for device, (data, *_) in zip(devices, operands, strict=True):
        if targets is None:
            _mailboxes(m).put(channel, data)
        elif device in targets:
            _mailboxes(m).put((channel, targets[device]), data)
    return [(o[0], np.zeros((), np.uint32), None) for o in operands]


def _recv(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    """Only asks: what was sent comes with the done, which may stand behind the send."""
    return [(None, np.zeros((), np.uint32), None) for _ in devices]


def _send_done(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return None


def _recv_done(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    """What was sent; zeros on a device that nobody sends to."""
    recv = i.operands[0]
    channel, targets = recv.attrs.get("channel_id"), _targets(recv)
    out: list[Value] = []
    for device in devices:
        if targets is not None and device not in targets.values():
            leaves = [np.zeros(s.dims, m.storage_type(s.dtype)) for s in recv.shape.elements[0].leaves()]
            data: Value = tuple(leaves) if recv.shape.elements[0].is_tuple else leaves[0]
        else:
            try:
                data = _mailboxes(m).take(channel if targets is None else (channel, device))
            except LookupError:
                raise RunError(
                    f"device {device} waits on channel {channel}, but no device sends: the program would hang",
                    where=recv.place,
                    fix="give every recv a send on the same channel; the evaluator has no host that sends",
                ) from None
        out.append((data, None))
    return out


def _infeed(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    queue: deque[Value] = m.memo.setdefault("infeed", deque())
    out: list[Value] = []
    for _ in devices:
        if not queue:
            raise RunError("the infeed has no more data", where=i.place, fix="pass the data as arguments")
        data = queue.popleft()
        out.append((data, None))
    return out


def _outfeed(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return None


def run_processes(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """``interpreter.run_parallel``: a grid of programs, each on a device of its own.

    Operands are those of all programs, one after the other, and so are the results.
    """
    grid = attributes_of(i)
    called: tuple[Computation, ...] = i.attrs["called_computations"]
    feeds, programs = called[: grid["infeed"]], called[grid["infeed"] :]
    inner = Interpreter(m.rows, grid["partitions"], grid["replicas"], m.float64, m.custom_calls)
    inner.memo["infeed"] = deque(inner.run_one(feed, ()) for feed in feeds)
    rest = iter(operands)
    arguments = [[next(rest) for _ in p.parameters] for p in programs]
    results: dict[int, Value] = {}

    def run(program: Computation) -> None:
        devices = [d for d, p in enumerate(programs) if p is program]
        with np.errstate(all="ignore"):
            results.update(zip(devices, inner.run(program, devices, [arguments[d] for d in devices]), strict=True))

    _side_by_side(inner, [partial(run, p) for p in dict.fromkeys(programs)])
    flat: list[Value] = []
    for d in range(len(programs)):
        flat += results[d] if isinstance(results[d], tuple) else (results[d],)
    return tuple(flat) if i.shape.is_tuple else flat[0]


def _side_by_side(m: Interpreter, jobs: Sequence[Callable[[], None]]) -> None:
    """Run jobs at once, as they may wait for each other; the first failure is raised."""
    boxes = _mailboxes(m)
    boxes.running = len(jobs)
    failures: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        with boxes.participant():
            try:
                job()
            except Exception as e:
                failures.append(e)

    if len(jobs) == 1:
        jobs[0]()
        return
    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for e in sorted(failures, key=lambda e: isinstance(e, ShardcError)):
        raise e


ROWS: Mapping[str, OpMeaning] = {
    "send": lockstep(_send),
    "send-done": OpMeaning(_send_done),
    "recv": lockstep(_recv),
    "recv-done": lockstep(_recv_done),
    "infeed": lockstep(_infeed),
    "outfeed": OpMeaning(_outfeed),
}
