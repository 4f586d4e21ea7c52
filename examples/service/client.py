"""A program that a compile service makes, and that runs here; a second client finds everything made already.

shardc serve --port 8377 --store /tmp/store --token-file /tmp/tokens          in one terminal
SHARDC_SERVER=http://127.0.0.1:8377 SHARDC_TOKEN=... python examples/service/client.py    in another
"""

import os

import numpy as np

import shardc
from shardc import Mesh, P, ShapeDtype

MESH = Mesh({"data": 2, "model": 2})


def layer(x, w1, w2):
    return np.tanh(x @ w1) @ w2


def main() -> None:
    client = shardc.connect()  # the address, the token and the server's key are those of the environment
    sizes = {"x": (64, 32), "w1": (32, 128), "w2": (128, 8)}
    specs = {"x": P("data"), "w1": P(None, "model"), "w2": P("model", None)}
    program = shardc.trace(layer, *(ShapeDtype(sizes[n], "float32", specs[n]) for n in sizes), mesh=MESH)

    report = client.partition(program).report()
    print("collectives:", ", ".join(c["op"] for c in report["collectives"]))

    step = client.simulate(program, "h100-dgx:4")
    print(f"a step on four GPUs: {1e6 * step.step_seconds:.0f} us")

    compiled = client.compile(program)  # native code for this processor, verified before it is loaded
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, "float32") for s in sizes.values()]
    difference = np.abs(np.asarray(compiled(*arrays)) - layer(*arrays)).max()
    print(f"largest difference from NumPy: {difference:.1e}")
    assert difference < 1e-3


if __name__ == "__main__":
    if not os.environ.get("SHARDC_SERVER"):
        raise SystemExit("set SHARDC_SERVER to the address that `shardc serve` prints, and SHARDC_TOKEN to the token")
    main()
