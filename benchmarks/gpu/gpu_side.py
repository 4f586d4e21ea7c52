"""One side of the measurements in a process of its own: ``shardc TARGET`` or ``xla PLATFORM``.

Reads a line of JSON, answers with one: {"do": "compile", "program": NAME}, {"do": "run", "steps": N}, ... An error is
an answer, too; the next line may ask for something else.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import jax
import numpy as np
from gpu_programs import Program, build


class Xla:
    """JAX on its GPU, products in the precision of their operands, as ours."""

    def __init__(self, small: bool) -> None:
        jax.config.update("jax_default_matmul_precision", "highest")
        self._small = small

    def describe(self) -> dict[str, Any]:
        self._need_device()
        return {"jax": jax.__version__}

    @staticmethod
    def _need_device() -> None:
        try:
            jax.devices()
        except (AssertionError, RuntimeError) as error:  # it has several ways to say it
            raise RuntimeError(f"JAX has no such device here: pip install 'jax[cuda13]' ({error})") from None

    def compile(self, program: str) -> dict[str, Any]:
        self._need_device()
        made = build(program, self._small)
        self._donates = made.donates
        start = time.perf_counter()
        jitted = jax.jit(made.function, donate_argnums=0 if made.donates else ())
        self._step = jitted.lower(*made.arguments).compile()
        seconds = time.perf_counter() - start
        self._arguments = list(jax.device_put(made.arguments))
        return {"seconds": seconds}

    def run(self, steps: int) -> dict[str, Any]:
        start = time.perf_counter()
        for _ in range(steps):
            value = self._step(*self._arguments)
            if self._donates:
                self._arguments[0], value = value
        jax.block_until_ready(value)
        return {"seconds": (time.perf_counter() - start) / steps, **_sums(value)}


class Ours:
    """shardc on ``target``; arrays stay on the device, calls return when a step is started."""

    def __init__(self, small: bool) -> None:
        import shardc

        self._shardc, self._small, self._target = shardc, small, sys.argv[2]

    def _runtime(self) -> Any:
        from shardc.launcher.gpu.devices import gpu_target_here, open_runtime
        from shardc.native.gpu.target import gpu_target

        return open_runtime(gpu_target_here() if self._target == "cuda" else gpu_target(self._target))

    def describe(self) -> dict[str, Any]:
        return {**self._runtime().describe(), "shardc": self._shardc.__version__}

    def compile(self, program: str) -> dict[str, Any]:
        made: Program = build(program, self._small)
        self._donates = made.donates
        jitted = self._shardc.jit(made.function, donate_argnums=0 if made.donates else (), target=self._target)
        start = time.perf_counter()
        self._step = jitted.compiled(*made.arguments)
        seconds = time.perf_counter() - start
        leaves, tree = jax.tree.flatten(made.arguments)
        self._arguments = list(jax.tree.unflatten(tree, [self._step.driver.put(n, x) for n, x in enumerate(leaves)]))
        return {"seconds": seconds, "moved_bytes": made.moved_bytes}

    def run(self, steps: int) -> dict[str, Any]:
        start = time.perf_counter()
        value = self._steps(steps)
        self._step.driver.context.runtime.synchronize()
        return {"seconds": (time.perf_counter() - start) / steps, **_sums(value)}

    def _steps(self, steps: int) -> Any:
        for _ in range(steps):
            value = self._step(*self._arguments)
            if self._donates:
                self._arguments[0], value = value
        return value

    def host(self, steps: int) -> dict[str, Any]:
        """What a call takes when the GPU does not hold it up: at most ten steps are under way."""
        runtime = self._step.driver.context.runtime
        seconds = []
        for n in range(steps):
            start = time.perf_counter()
            self._steps(1)
            seconds.append(time.perf_counter() - start)
            if n % 10 == 9:
                runtime.synchronize()
        return {"seconds": statistics.median(seconds)}

    def copy(self, nbytes: int) -> dict[str, Any]:
        """Bytes per second of a copy within the device, read and written bytes counted: the best of several."""
        runtime = self._runtime()
        stream, (first, last) = runtime.stream(), (runtime.event(timed=True), runtime.event(timed=True))
        to, source = runtime.allocate(nbytes), runtime.allocate(nbytes)
        rates = []
        for _ in range(6):
            runtime.record(first, stream)
            for _ in range(10):
                runtime.copy(to.address, source.address, nbytes, stream)
            runtime.record(last, stream)
            runtime.synchronize(stream)
            rates.append(20 * nbytes / max(runtime.elapsed(first, last), 1e-9))
        return {"rate": max(rates)}

    def demo(self) -> dict[str, Any]:
        """The demo's training step on four virtual devices of the GPU, against the same on the CPU."""
        from shardc import Program as Partitionable
        from shardc.demo.export import bundled_module
        from shardc.demo.setup import example_inputs

        module = bundled_module()
        partitioned = Partitionable(module).partition()
        arguments = example_inputs(module.arg_names)
        got, want = (
            [np.asarray(r, np.float64) for r in partitioned.compile(target).run(list(arguments))]
            for target in (self._target, "cpu")
        )
        differences = [np.abs(g - w).max() / max(np.abs(w).max(), 1e-30) for g, w in zip(got, want, strict=True)]
        return {"devices": partitioned.num_devices, "difference": float(max(differences)), "loss": float(got[-1])}

    def nccl(self, count: int) -> dict[str, Any]:
        """Sum, gather and send with a communicator of this GPU alone: what comes out is what went in."""
        from shardc.native.gpu.cuda.nccl import Communicator, nccl_version, new_unique_id, together

        runtime = self._runtime()
        stream, nbytes = runtime.stream(), 4 * count
        host = runtime.pinned(4 * nbytes).view(np.float32)
        host[:count] = np.random.default_rng(0).standard_normal(count, np.float32)
        memories = [runtime.allocate(nbytes) for _ in range(4)]
        arrays = [memory.address for memory in memories]
        runtime.copy(arrays[0], host.ctypes.data, nbytes, stream)
        communicator = Communicator(runtime, new_unique_id(), 1, 0)
        communicator.all_reduce(arrays[0], arrays[1], count, "f32", "add", stream)
        communicator.all_gather(arrays[0], arrays[2], nbytes, stream)
        with together(communicator):
            communicator.send(arrays[0], nbytes, 0, stream)
            communicator.receive(arrays[3], nbytes, 0, stream)
        for n in (1, 2, 3):
            runtime.copy(host.ctypes.data + n * nbytes, arrays[n], nbytes, stream)
        runtime.synchronize(stream)
        communicator.close()
        equal = all((host[:count] == host[n * count : (n + 1) * count]).all() for n in (1, 2, 3))
        return {"equal": bool(equal), "version": nccl_version()}


def _sums(value: Any) -> dict[str, float]:
    """Something to compare, outside of what is measured: of the first thousand elements the sum, and that of sizes."""
    some = np.asarray(value).ravel()[:1000].astype(np.float64)
    return {"value": float(some.sum()), "size": float(np.abs(some).sum())}


def main() -> None:
    side = {"shardc": Ours, "xla": Xla}[sys.argv[1]](small="--small" in sys.argv)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(side, question.pop("do"))(**question)
        except Exception as error:
            if "--verbose" in sys.argv:
                traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
