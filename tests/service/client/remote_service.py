"""A compile service in one thread, for the tests of its client: the real work and real signatures behind a plain
`http.server`, which can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from shardc.hlo.errors import InputError, ShardcError
from shardc.launcher.executors.problems import to_problem
from shardc.service.jobs import MANIFEST, Artifact, Job, StoreEntry
from shardc.service.orders import from_json, order_key
from shardc.service.store.signature import sign
from shardc.service.workers.carry_out import carry_out

KEY = bytes(range(32))
TOKEN = "a-token"

#: Method, path, answer's status, content: what it would answer; gives what it does (None: it breaks off).
Spoil = Callable[[str, str, int, bytes], tuple[int, bytes] | None]


def _honest(method: str, path: str, status: int, content: bytes) -> tuple[int, bytes] | None:
    return status, content


@dataclass
class FakeService:
    """``asked`` counts requests by method and path with digests and ids left out; ``made`` orders carried out."""

    url: str = ""
    tls: ssl.SSLContext | None = None
    token: str = ""
    key: bytes = KEY
    spoil: Spoil = _honest
    hold: threading.Event | None = None
    version: str = ""
    breaks: bool = False
    asked: Counter[str] = field(default_factory=Counter)
    made: Counter[str] = field(default_factory=Counter)
    cancelled: list[str] = field(default_factory=list)
    programs: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    entries: dict[str, StoreEntry] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def submit(self, body: bytes) -> tuple[int, Any]:
        order = from_json(body)
        wanted = [order.program, *getattr(order, "programs", ())]
        missing = [digest for digest in wanted if digest not in self.programs]
        if missing:
            return 404, {**to_problem(InputError("unknown program"), 404), "missing": missing}
        key, kind = order_key(order) + self.version, type(order).__name__
        key = hashlib.sha256(key.encode()).hexdigest() if self.version else key
        job = Job(f"job{len(self.jobs)}", key, kind, order.name, "queued", time.time(), position=1)
        with self.lock:
            self.jobs[job.id] = job
            if key in self.entries:
                self.jobs[job.id] = replace(job, state="done", entry=self.entries[key], cached=True)
                return 200, self.told(self.jobs[job.id])
        threading.Thread(target=self.work, args=(job, order), daemon=True).start()
        return 202, self.told(job)

    def work(self, job: Job, order: Any) -> None:
        if self.hold is not None:
            self.jobs[job.id] = replace(job, state="running", progress={"stage": "held"})
            self.hold.wait(60)
        with self.lock:
            if self.jobs.get(job.id, job).state == "cancelled":
                return
            try:
                self.made[job.kind] += 1
                files, facts = carry_out(order, self.programs, lambda _: None)
            except ShardcError as e:
                self.jobs[job.id] = replace(job, state="failed", problem=to_problem(e))
                return
            artifacts = tuple(
                Artifact(n, len(d), hashlib.sha256(d).hexdigest(), "application/octet-stream") for n, d in files.items()
            )
            entry = sign(StoreEntry(job.key, artifacts, facts), self.key)
            self.files[job.key], self.entries[job.key] = files, entry
            self.jobs[job.id] = replace(job, state="done", entry=entry)

    def told(self, job: Job) -> dict[str, Any]:
        data = {**asdict(job), "href": f"/v1/jobs/{job.id}", "later_versions": "say more"}
        if job.entry is not None:
            for artifact in data["entry"]["artifacts"]:
                artifact["href"] = "/somewhere"
        return data

    def manifest(self, parts: list[str]) -> str:
        """The header of a file's answer."""
        if len(parts) < 2 or parts[0] not in self.entries:
            return ""
        return base64.b64encode(json.dumps(asdict(self.entries[parts[0]])).encode()).decode()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        match method, path.strip("/").split("/")[1:]:
            case "GET", ["info"]:
                return 200, {"version": "0"}
            case "GET", ["key"]:
                return 200, {"key": self.key.hex()}
            case "GET", ["machines"]:
                return 200, {"machines": [{"name": "m"}]}
            case "POST", ["programs"]:
                digest = hashlib.sha256(body).hexdigest()
                self.programs[digest] = body
                return 201, {"program": digest, "bytes": len(body), "kind": "hlo"}
            case "POST", ["jobs"]:
                return self.submit(body)
            case "GET", ["jobs", number] if number in self.jobs:
                end = time.monotonic() + float(query.partition("wait=")[2] or 0)
                while time.monotonic() < end and not self.jobs[number].over:
                    time.sleep(0.005)
                return 200, self.told(self.jobs[number])
            case "DELETE", ["jobs", number] if number in self.jobs:
                self.cancelled.append(number)
                self.jobs[number] = replace(self.jobs[number], state="cancelled")
                return 200, self.told(self.jobs[number])
            case "GET", ["artifacts", key] if key in self.entries:
                return 200, asdict(self.entries[key])
            case "GET", ["artifacts", key, name] if name in self.files.get(key, {}):
                return 200, self.files[key][name]
        return 404, to_problem(InputError("there is nothing at this path", where=path), 404)


@contextmanager
def serving(**options: Any) -> Iterator[FakeService]:
    """A running service."""
    service = FakeService(**options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path
            service.asked[f"{self.command} " + "/".join(p for p in path.partition("?")[0].split("/")[:3])] += 1
            if service.token and self.headers.get("Authorization") != f"Bearer {service.token}":
                self._send(401, json.dumps(to_problem(InputError("no such token"), 401)).encode())
            elif path.endswith("/events"):
                self._events(path.split("/")[3])
            else:
                status, told = service.answer(self.command, path, body)
                self._send(status, told if isinstance(told, bytes) else json.dumps(told).encode())

        def _send(self, status: int, content: bytes) -> None:
            found = service.spoil(self.command, self.path, status, content)
            if found is None:
                self.close_connection = True
                return
            self.send_response(found[0])
            self.send_header("Content-Length", str(len(found[1])))
            manifest = service.manifest(self.path.split("/")[3:]) if status == 200 else ""
            if manifest:
                self.send_header(MANIFEST, manifest)
            self.end_headers()
            self.wfile.write(found[1])

        def _events(self, number: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            last = None
            self.wfile.write(b": a comment\n\n")
            while last is None or not last.over:
                if service.jobs[number] is not last:
                    last = service.jobs[number]
                    self.wfile.write(b"event: job\ndata: " + json.dumps(service.told(last)).encode() + b"\n\n")
                    self.wfile.flush()
                    if service.breaks:
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                time.sleep(0.005)

        do_GET = do_POST = do_DELETE = _do  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if service.tls is not None:
        server.socket = service.tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    service.url = f"http{'' if service.tls is None else 's'}://127.0.0.1:{server.server_port}"
    try:
        yield service
    finally:
        if service.hold is not None:
            service.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
