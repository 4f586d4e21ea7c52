"""What compiled programs tell of themselves, beside what JAX's own backend tells of the same ones."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from plugin_environment import plugin_environment

pytest.importorskip("jax")

PROGRAM = Path(__file__).with_name("told_program.py")

CACHED = """
import jax, jax.numpy as jnp, numpy as np
from jax._src import monitoring
from jax.sharding import NamedSharding, PartitionSpec as P
seen = []
monitoring.register_event_listener(lambda name, **more: seen.append(name.rpartition("/")[2]))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
x = jax.device_put(np.arange(32, dtype=np.float32).reshape(8, 4), NamedSharding(mesh, P("x")))
compiled = jax.jit(lambda a: (jnp.sin(a) @ a.T).sum(0)).lower(x).compile()
result = compiled(x)
print(seen.count("cache_hits"), seen.count("cache_misses"), result.sharding.spec, np.asarray(result).tobytes().hex())
print(compiled.as_text().count("all-"), compiled.memory_analysis())
"""

PROFILED = """
import sys, jax, jax.numpy as jnp
from pathlib import Path
x = jnp.ones((64, 64))
f = jax.jit(lambda a: a @ a)
with jax.profiler.trace(sys.argv[1]):
    f(x).block_until_ready()
print(len(list(Path(sys.argv[1]).rglob("*.xplane.pb"))), len(jax.profiler.device_memory_profile()) > 0)
stats = jax.devices()[0].memory_stats()
print(stats["bytes_in_use"] >= x.nbytes, stats["peak_bytes_in_use"] >= stats["bytes_in_use"], stats["num_allocs"] > 0)
"""

FOREIGN = """
import jax, numpy as np
from jax._src.lib import xla_client
from shardc.hlo.version import VERSION
compiled = jax.jit(lambda a: a * 2).lower(np.ones(3, np.float32)).compile()
client = jax.devices()[0].client
devices = xla_client.DeviceList(tuple(client.devices()))
data = compiled.runtime_executable().serialize()
archive = data.index(b"PK")
version = VERSION.encode()
broken = {
    "version": data.replace(b"shardc program\\x12" + bytes([len(version)]) + version,
                            b"shardc program\\x12" + bytes([len(version)]) + b"0" * len(version)),
    "damaged": data[:archive] + b"??" + data[archive + 2:],
    "foreign": data.replace(b"shardc program", b"shardc picture"),
}
client.deserialize_executable(data, executable_devices=devices)
for name, content in broken.items():
    assert content != data, name
    try:
        client.deserialize_executable(content, executable_devices=devices)
    except jax.errors.JaxRuntimeError as e:
        print(name, str(e).replace(chr(10), " "))
"""


def _run(folder: Path, platform: str, *arguments: str, devices: int = 4, **more: str) -> str:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *arguments],
        env=plugin_environment(platform, folder, devices, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_programs_tell_what_those_of_xla_tell(tmp_path: Path) -> None:
    def told(platform: str) -> Any:
        return json.loads(_run(tmp_path / platform, platform, str(PROGRAM)))

    with ThreadPoolExecutor(2) as pool:
        mine, xlas = pool.map(told, ("shardc", "cpu"))
    assert mine.keys() == xlas.keys()
    for name, value in xlas.items():
        assert mine[name] == value, name
    assert mine["step"]["parameters"]
    assert mine["refused"] == [True]


def test_the_second_process_has_programs_from_jaxs_cache(tmp_path: Path) -> None:
    more = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}
    first = _run(tmp_path / "metadata", "shardc", "-c", CACHED, **more).split("\n")
    second = _run(tmp_path / "metadata", "shardc", "-c", CACHED, **more).split("\n")
    hits, misses, *rest = first[0].split(" ")
    assert (int(hits), int(misses) > 0) == (0, True)
    assert second[0].split(" ") == [misses, "0", *rest]
    assert first[1] == second[1]
    assert int(first[1].split(" ")[0]) > 0


def test_profiles_and_memory_are_there(tmp_path: Path) -> None:
    out = _run(tmp_path / "metadata", "shardc", "-c", PROFILED, str(tmp_path / "trace"), devices=1)
    assert out.split("\n")[:2] == ["1 True", "True True True"]


def test_bytes_that_are_no_program_of_this_version_are_errors_with_a_way_out(tmp_path: Path) -> None:
    lines = _run(tmp_path / "metadata", "shardc", "-c", FOREIGN, devices=1).splitlines()
    said = dict(line.split(" ", 1) for line in lines)
    assert said.keys() == {"version", "damaged", "foreign"}
    assert "was compiled by shardc 0000" in said["version"]
    assert "executable" in said["damaged"]
    assert "these bytes are not a compiled program of shardc" in said["foreign"]
    assert all("fix: compile the program again" in line for line in said.values())
