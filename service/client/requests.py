"""Requests to a compile service: submits orders, waits, fetches results, and checks all of them.

Nothing of an answer is used before the signature of its entry, and length and digest of each file, were verified.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import quote

from shardc.hlo.codec.plain import from_json, from_plain
from shardc.hlo.errors import EnvironmentProblem, InputError, RunError, ShardcError
from shardc.hlo.version import VERSION
from shardc.launcher.executors.problems import from_problem
from shardc.service.client.address import Address
from shardc.service.client.connection import Connection, ServiceAway, Unknown
from shardc.service.jobs import MANIFEST, Artifact, Job, StoreEntry
from shardc.service.orders import Order, checked_order, to_json

__all__ = ["Hear", "Requests", "Result"]

T = TypeVar("T")

#: Hears of a job, each time that it changes.
Hear = Callable[[Job], None]

#: Seconds that a question for a job waits at the service.
_WAIT = 30.0
#: How often an order is handed in again after the service forgot its program, its job or its result.
_AGAIN = 2
#: Bytes of the largest file whose size nobody has told yet.
_LARGEST = 1 << 31


class Requests:
    """What a service can be asked for; `shardc.service.client.client.Client` speaks of programs.

    ``hear`` hears of jobs as they change. To be closed, by ``with`` or `close`. ``timeout`` and ``retry`` as
    `Connection` has them.
    """

    def __init__(
        self, address: Address, *, hear: Hear | None = None, timeout: float = 30.0, retry: bool = True
    ) -> None:
        self.address = address
        self._hear = hear
        self._connection = Connection(address, timeout=timeout, retry=retry)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address.url!r})"

    def close(self) -> None:
        """End the connection; the next question opens another one.

        >>> service.close()
        """
        self._connection.close()

    def info(self) -> Mapping[str, Any]:
        """Version, limits and workers of the service.

        >>> service.info()["version"] == shardc.__version__
        True
        """
        return _object(self._connection.json("GET", "/v1/info"))

    def machines(self) -> list[Mapping[str, Any]]:
        """The machines that it knows: name, title, device, levels.

        >>> "h100-dgx" in [machine["name"] for machine in service.machines()]
        True
        """
        return [_object(m) for m in _object(self._connection.json("GET", "/v1/machines")).get("machines", ())]

    def upload(self, data: bytes) -> str:
        """Give it a program; returns the SHA-256 that names it in orders.

        >>> service.upload(text) == digest
        True
        """
        digest = hashlib.sha256(data).hexdigest()
        told = _object(self._connection.json("POST", "/v1/programs", content=data)).get("program")
        if told != digest:
            raise RunError(
                f"the program was damaged in transfer: sent {digest}, received {told}", where=self.address.url
            )
        return digest

    def submit(self, order: Order | Mapping[str, Any], programs: Mapping[str, bytes] | None = None) -> Job:
        """Submit ``order``, an `Order` or its plain data. ``programs`` maps SHA-256 to bytes; the client uploads those
        that the service lacks.

        If the result exists, the job is done at once. Raises `InputError` for an invalid order, `Unknown` for a program
        that neither side has.

        >>> job = service.submit({"kind": "simulate", "program": digest, "machine": "h100-dgx"})
        >>> job.kind
        'simulate'
        """
        given, order = programs or {}, checked_order(order)
        body = to_json(order).encode()
        for more in reversed(range(_AGAIN + 1)):  # what was sent may have had to make room again
            try:
                return self._ask_job("POST", "/v1/jobs", content=body, media_type="application/json")
            except Unknown as e:
                if not more or not e.missing or any(digest not in given for digest in e.missing):
                    raise
                for digest in e.missing:
                    self._send(given[digest], order)
        raise AssertionError("the last try returns or raises")

    def _send(self, data: bytes, order: Order) -> None:
        """`upload` a program of ``order``, which errors call by its name."""
        try:
            self.upload(data)
        except InputError as e:
            if e.where != "body":
                raise
            raise type(e)(e.what, where=order.name or None, fix=e.fix) from None

    def job(self, number: str, wait: float = 0.0) -> Job:
        """The job called ``number``; as soon as it is over, or after ``wait`` seconds (at most 60).

        >>> service.job(job.id).kind
        'simulate'
        """
        path = f"/v1/jobs/{quote(number, safe='')}" + (f"?wait={wait:g}" if wait else "")
        return self._ask_job("GET", path, wait=wait)

    def cancel(self, number: str) -> Job:
        """End a job; one that is over stays as it is.

        >>> service.cancel(service.wait(job).id).state
        'done'
        """
        return self._ask_job("DELETE", f"/v1/jobs/{quote(number, safe='')}")

    def wait(self, job: Job, hear: Hear | None = None) -> Job:
        """``job`` when it has ended: done, failed (`Job.problem`) or cancelled. An interrupt (Ctrl-C) cancels the job.
        ``hear`` is called with each change.

        >>> service.wait(job).state
        'done'
        """
        hears = [h for h in (self._hear, hear) if h is not None]
        try:
            if hears and not job.over:
                with contextlib.suppress(ServiceAway):  # it is asked for again
                    job = self._follow(job, hears)
            while not job.over:
                job = self.job(job.id, _WAIT)
                for told in hears:
                    told(job)
        except KeyboardInterrupt:
            with contextlib.suppress(ShardcError):
                self.cancel(job.id)
            raise
        return job

    def _follow(self, job: Job, hears: Sequence[Hear]) -> Job:
        for name, data in self._connection.events(f"/v1/jobs/{quote(job.id, safe='')}/events"):
            if name == "job":
                job = _job(data)
                for hear in hears:
                    hear(job)
                if job.over:
                    break
        return job

    def carry_out(
        self,
        order: Order | Mapping[str, Any],
        programs: Mapping[str, bytes],
        hear: Hear | None = None,
        key: str = "",
    ) -> Result:
        """Submit ``order`` as `submit` does, wait, and return its result. ``hear`` is called with each change of the
        job, as is the client's own ``hear``.

        With a ``key``, the job must have this key, which proves that the service runs the same compiler. Raises the
        error of the failed job, as the local stage would, or `ServiceAway`.

        >>> made = service.carry_out({"kind": "partition", "program": digest}, {digest: text})
        >>> made.json("report.json")["devices"]
        4
        """
        order = checked_order(order)
        for more in reversed(range(_AGAIN + 1)):
            try:
                job = self.submit(order, programs)
                if self._hear is not None:
                    self._hear(job)
                if key and job.key != key:
                    self._another_build(job)
                job = self.wait(job, hear)
                break
            except Unknown as e:
                if e.missing or not more:  # a restarted service may have forgotten its jobs
                    raise
        if job.state == "failed":
            raise from_problem(job.problem or {"what": "the service gives no reason for the failure of the job"})
        if job.entry is None:
            raise RunError("the job was cancelled", where=f"job {job.id} at {self.address.url}")
        if job.entry.key != job.key:
            raise RunError("the service returned another result than the requested one", where=f"job {job.id}")
        return Result(self, self.check_entry(job.entry), order, programs)

    def _another_build(self, job: Job) -> NoReturn:
        """Refuse a job with another key than the same shardc gives it."""
        from shardc.compiler.cache.cache import content_key

        if not job.over:
            with contextlib.suppress(ShardcError):
                self.cancel(job.id)
        info = self.info()
        there, here = f"{info.get('version')} ({info.get('build')})", f"{VERSION} ({content_key('build')[:16]})"
        raise EnvironmentProblem(
            f"the compile service has another version of shardc or llvmlite: {there}, but this machine has {here}",
            where=self.address.url,
            fix="install the same version on both machines",
        )

    def entry(self, key: str) -> StoreEntry:
        """The manifest of the result called ``key``, verified; `Unknown` where there is none.

        >>> service.entry(made.entry.key).facts["kind"]
        'partition'
        """
        found = _entry(_object(self._connection.json("GET", f"/v1/artifacts/{quote(key, safe='')}")))
        if found.key != key:
            raise RunError(f"the service returned {found.key} instead of {key}", where=self.address.url)
        return self.check_entry(found)

    def check_entry(self, entry: StoreEntry) -> StoreEntry:
        """``entry``; `RunError` unless this service signed it."""
        from shardc.service.store.signature import check_signature

        check_signature(entry, self._key)
        return entry

    def fetch(self, entry: StoreEntry | str, name: str) -> bytes:
        """A file of a verified ``entry`` (or of the one of that key); `RunError` unless it is the one that was signed.

        >>> service.fetch(made.entry, "partitioned.hlo")[:9]
        b'HloModule'
        """
        entry = self.entry(entry) if isinstance(entry, str) else entry
        found = next((a for a in entry.artifacts if a.name == name), None)
        if found is None:
            names = ", ".join(a.name for a in entry.artifacts)
            raise InputError(f"the result has no file {name!r}", where=f"result {entry.key}", fix=f"it has {names}")
        return _check_file(entry, found, self._connection.read("GET", _path(entry.key, name), limit=found.bytes))

    def fetch_stored(self, key: str, name: str) -> tuple[StoreEntry, bytes] | None:
        """The result called ``key`` and its file ``name``, both verified, by one question; None where the service does
        not have them."""
        try:
            data, headers = self._connection.ask("GET", _path(key, name), limit=_LARGEST)
            text = headers.get(MANIFEST, "")
            entry = self.check_entry(_entry(_decode_manifest(text))) if text else self.entry(key)
        except Unknown:
            return None
        found = next((a for a in entry.artifacts if a.name == name), None)
        if entry.key != key or found is None:
            raise RunError(f"the service returned another result instead of {name} of {key}", where=self.address.url)
        return entry, _check_file(entry, found, data)

    @cached_property
    def _key(self) -> bytes:
        """What the service signs with: as it was configured, else as the service says."""
        text = self.address.key or str(_object(self._connection.json("GET", "/v1/key")).get("key"))
        try:
            key = bytes.fromhex(text)
        except ValueError:
            key = b""
        if len(key) != hashlib.sha256().digest_size:
            raise RunError("the service returned no valid key", where=f"{self.address.url}/v1/key")
        return key

    def _ask_job(self, method: str, path: str, **options: Any) -> Job:
        return _job(self._connection.json(method, path, **options))


@dataclass(frozen=True)
class Result:
    """What an order made: files by name, fetched and verified when they are asked for, and ``facts`` about them.

    >>> made = service.carry_out(PartitionOrder(program=digest), {digest: text})
    >>> made.facts["kind"]
    'partition'
    """

    requests: Requests
    entry: StoreEntry
    order: Order
    programs: Mapping[str, bytes]

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.entry.facts

    def file(self, name: str) -> bytes:
        """The file called ``name``; made again if the service has evicted it.

        >>> made.file("partitioned.hlo").decode()[:9]
        'HloModule'
        """
        try:
            return self.requests.fetch(self.entry, name)
        except Unknown:
            return self.requests.fetch(self.requests.carry_out(self.order, self.programs).entry, name)

    def json(self, name: str) -> Any:
        """The data in a JSON file.

        >>> made.json("report.json")["devices"]
        4
        """
        return json.loads(self.file(name))

    def value(self, kind: type[T], name: str) -> T:
        """The value of a class of ours that a JSON file holds.

        >>> from shardc.service.results import StagesFacts
        >>> type(made.value(StagesFacts, "stages.json")).__name__
        'StagesFacts'
        """
        return from_json(kind, self.file(name), name)


def _path(key: str, name: str) -> str:
    return f"/v1/artifacts/{quote(key, safe='')}/{quote(name, safe='')}"


def _check_file(entry: StoreEntry, artifact: Artifact, data: bytes) -> bytes:
    """``data``, if it is the ``artifact`` of ``entry``."""
    if len(data) != artifact.bytes or hashlib.sha256(data).hexdigest() != artifact.sha256:
        raise RunError(
            f"{artifact.name} does not match the service's signature: it was damaged in transfer",
            where=f"result {entry.key}",
        )
    return data


def _decode_manifest(text: str) -> Any:
    """The manifest in a header."""
    try:
        return json.loads(base64.b64decode(text, validate=True))
    except ValueError:
        raise RunError(f"the header {MANIFEST} cannot be read: is this a compile service?") from None


def _object(data: object) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise RunError("the answer has an unexpected form: is this a compile service?")
    return data


def _known_fields(kind: type[Artifact | StoreEntry | Job], data: object) -> dict[str, Any]:
    """The members of ``data`` that are fields of ``kind``: later versions may tell more."""
    names = {f.name for f in fields(kind)}
    return {k: v for k, v in _object(data).items() if k in names}


def _entry(data: object) -> StoreEntry:
    told = _known_fields(StoreEntry, data)
    told["artifacts"] = [_known_fields(Artifact, a) for a in told.get("artifacts") or ()]
    return _read(StoreEntry, told)


def _job(data: object) -> Job:
    told = _known_fields(Job, data)
    entry = told.pop("entry", None)
    return replace(_read(Job, told), entry=None if entry is None else _entry(entry))


def _read(kind: type[T], data: object) -> T:
    try:
        found: T = from_plain(kind, data, kind.__name__.lower())
    except InputError as e:
        raise RunError(f"the service's answer cannot be read: {e.what}", where=e.where) from None
    return found
