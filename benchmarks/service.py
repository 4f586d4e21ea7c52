"""The compile service: a request that its store answers against a hit of the local cache, throughput, memory.

python benchmarks/service.py [SECTION ...] [--dry]: prints the tables and writes them into docs/service.md
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tables import insert, table

if TYPE_CHECKING:
    from shardc.service.client.client import Client

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "a-token-of-the-benchmark-0123456789"
REPEATS = 60
CLIENTS = 8
#: Distinct programs of the throughput's row.
PROGRAMS = 48
MIB = 2**20


@dataclass(frozen=True)
class Server:
    url: str
    pid: int

    @property
    def pids(self) -> list[int]:
        """Of the server and of its workers."""
        found, left = [], [self.pid]
        while left:
            found.append(left.pop())
            for path in Path(f"/proc/{found[-1]}/task").glob("*/children"):
                left += map(int, path.read_text(encoding="ascii").split())
        return found

    def memory(self) -> tuple[float, float]:
        """Bytes of the server and of its workers that are theirs alone; what is shared is shared out (PSS)."""
        each = [_proportional(pid) for pid in self.pids]
        return each[0], sum(each[1:])


def _proportional(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return 1024.0 * int(found[1])


@contextmanager
def serving(folder: Path, workers: int) -> Iterator[Server]:
    """`shardc serve` on an empty store."""
    folder.mkdir()
    (folder / "tokens").write_text(f"benchmark {TOKEN}\n", encoding="utf-8")
    words = [sys.executable, "-m", "shardc", "serve", "--json", "--quiet", "--port", "0", "--workers", str(workers)]
    words += ["--store", str(folder / "store"), "--token-file", str(folder / "tokens")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        try:
            said = json.loads(process.stdout.readline())
            yield Server(said["url"], process.pid)
        finally:
            process.terminate()


def program(number: int, layers: int) -> str:
    """Layers of different sizes, which are compiled one by one; over two devices."""
    sizes = [64 + 2 * n + 4 * number for n in range(layers + 1)]
    lines = [f"  h0 = f32[32,{sizes[0]}] parameter(0), sharding={{devices=[2,1]<=[2]}}"]
    for n in range(layers):
        out = f"f32[32,{sizes[n + 1]}]"
        lines += [
            f"  w{n} = f32[{sizes[n]},{sizes[n + 1]}] parameter({n + 1})",
            f"  p{n} = {out} dot(h{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"  {'ROOT ' if n == layers - 1 else ''}h{n + 1} = {out} tanh(p{n})",
        ]
    return f"HloModule layers_{number}_{layers}, num_partitions=2\n\nENTRY main {{\n" + "\n".join(lines) + "\n}\n"


CACHED_HEAD = (
    *("program", "executable", "compiled anew", "file, local cache", "file, service", "ratio"),
    *("executable by key, local cache", "by order, service", "ratio"),
)


def cached_rows(folder: Path) -> list[Sequence[str]]:
    """`Program.compile` of a file with a warm cache, and `Client.compile` of it without one; then the innermost part
    alone: from a key, or an order, to an executable in memory.

    A file's program is read and partitioned before the local cache is asked, and only hashed by the service's client.
    """
    import shardc
    from shardc.compiler.cache.cache import fetch_or_build, find_cached
    from shardc.compiler.cache.serialize import to_bytes
    from shardc.launcher.driver.compiled import job_config
    from shardc.native.llvm.target import host_target
    from shardc.service.client.executables import fetch_or_compile

    rows = []
    path, config = folder / "program.hlo", job_config()
    texts = {"perceptron": (ROOT / "examples" / "hlo_annotated" / "mlp.hlo").read_text(encoding="utf-8")}
    texts |= {f"{layers} layers": program(0, layers) for layers in (8, 64)}
    with serving(folder / "cached", 1) as server, shardc.connect(server.url, token=TOKEN) as client:
        for name, text in texts.items():
            path.write_text(text, encoding="utf-8")
            anew = seconds(shardc.load(path).compile)
            remote = client.program(path)
            order = remote.partition().compile_order("cpu", host_target(), page=False)
            executable, _ = fetch_or_compile(client, order, {remote.digest: remote.data})
            key = remote.digest
            fetch_or_build(key, config, lambda executable=executable: executable)
            files = beside(lambda: shardc.load(path).compile(), lambda: client.compile(path))
            keys = beside(
                lambda key=key: find_cached(key, config),
                lambda order=order, remote=remote: fetch_or_compile(client, order, {remote.digest: remote.data}),
            )
            rows.append((name, f"{len(to_bytes(executable)) / 1024:.0f} KiB", _ms(anew), *files, *keys))
    return rows


THROUGHPUT_HEAD = (
    "workers",
    f"{PROGRAMS} programs, 16 layers each",
    "compiled per second",
    "answered from the store per second",
)


def throughput_rows(folder: Path, workers: Sequence[int] = (1, 2)) -> list[Sequence[str]]:
    """Distinct programs that clients send together, and the same ones once more."""
    import shardc

    texts = [program(number, 16).encode() for number in range(1, PROGRAMS + 1)]
    rows = []
    for count in workers:
        with (
            serving(folder / f"workers{count}", count) as server,
            shardc.connect(server.url, token=TOKEN) as client,
            ThreadPoolExecutor(CLIENTS) as pool,
        ):
            made = partial(_made, client)
            made(program(0, 16).encode())  # the workers have their modules
            anew = seconds(lambda pool=pool, made=made: list(pool.map(made, texts)))
            again = seconds(lambda pool=pool, made=made: list(pool.map(made, texts * 4)))
        rows.append((str(count), f"{anew:.1f} s", f"{PROGRAMS / anew:.1f}", f"{4 * PROGRAMS / again:.0f}"))
    return rows


def _made(client: Client, text: bytes) -> None:
    """Have a program compiled, and wait for it; what was made stays there."""
    from shardc.service.orders import CompileOrder

    digest = client.upload(text)
    client.carry_out(CompileOrder(program=digest, page=False), {})


MEMORY_HEAD = ("memory", "the server", "one worker", "together")


def memory_rows(folder: Path) -> list[Sequence[str]]:
    """Before anything was asked, and after the programs of the throughput."""
    import shardc

    rows = []
    with serving(folder / "memory", 1) as server, shardc.connect(server.url, token=TOKEN) as client:
        time.sleep(3)
        rows.append(_memory("idle, nothing asked yet", server))
        for number in range(PROGRAMS):
            _made(client, program(number, 16).encode())
        rows.append(_memory(f"idle, after {PROGRAMS} programs", server))
    return rows


def _memory(name: str, server: Server) -> Sequence[str]:
    front, workers = server.memory()
    return (name, f"{front / MIB:.0f} MiB", f"{workers / MIB:.0f} MiB", f"{(front + workers) / MIB:.0f} MiB")


def seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def beside(here: Callable[[], object], there: Callable[[], object]) -> tuple[str, str, str]:
    """Medians of both, in turn after one time that does not count, and the second over the first."""
    here(), there()
    pairs = [(seconds(here), seconds(there)) for _ in range(REPEATS)]
    first, second = (statistics.median(taken) for taken in zip(*pairs, strict=True))
    return _ms(first), _ms(second), f"{second / first:.1f}"


def _ms(taken: float) -> str:
    return f"{1e3 * taken:.1f} ms"


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}, Python {platform.python_version()}.\n\n"


#: By the name of the marker in docs/service.md.
SECTIONS: Mapping[str, tuple[Sequence[str], Callable[[Path], list[Sequence[str]]]]] = {
    "service-cached": (CACHED_HEAD, cached_rows),
    "service-throughput": (THROUGHPUT_HEAD, throughput_rows),
    "service-memory": (MEMORY_HEAD, memory_rows),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", nargs="*", default=list(SECTIONS), help="which tables (default: all)")
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    found = {}
    for name in options.section:
        head, rows = SECTIONS[name]
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SHARDC_CACHE_DIR"] = str(Path(folder) / "cache")  # the client's
            found[name] = _machine() + table(head, rows(Path(folder)))
        print(f"{name}\n\n{found[name]}", flush=True)
    if not options.dry:
        insert(ROOT / "docs" / "service.md", found)


if __name__ == "__main__":
    main()
