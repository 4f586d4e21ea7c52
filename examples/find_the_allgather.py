"""A language model's loss wants its logits whole, and nobody remembers why: a constraint that one line too many has.

Run `python examples/find_the_allgather.py`: it asks explain where the bytes go, and proves on 8 virtual devices that
the remedy it names gives the same numbers without the gather.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

import shardc
from shardc import Mesh, P

TOKENS, WIDTH, HIDDEN, VOCABULARY = 256, 64, 256, 4096
mesh = Mesh({"data": 2, "model": 4})


def loss_of(params, tokens, targets):
    h = params["embedding"][tokens]
    h = h + jax.nn.gelu(h @ params["w1"]) @ params["w2"]
    logits = h @ params["head"]
    logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh.to_jax(), jax.P("data", None)))  # the mistake
    at_target = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - at_target)


def step(params, tokens, targets):
    loss, gradients = jax.value_and_grad(loss_of)(params, tokens, targets)
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, gradients), loss


shapes = {"embedding": (VOCABULARY, WIDTH), "w1": (WIDTH, HIDDEN), "w2": (HIDDEN, WIDTH), "head": (WIDTH, VOCABULARY)}
rng = np.random.default_rng(0)
params = {name: rng.normal(0, dims[0] ** -0.5, dims).astype(np.float32) for name, dims in shapes.items()}
tokens, targets = rng.integers(0, VOCABULARY, (2, TOKENS)).astype(np.int32)

rows, columns = P("model", None), P(None, "model")
specs = {"embedding": columns, "w1": columns, "w2": rows, "head": columns}
shardings = {"in_shardings": (specs, P("data"), P("data")), "out_shardings": (specs, P())}
program = shardc.jit(step, mesh=mesh, **shardings).program(params, tokens, targets)
wrong = program.partition()
explanation = wrong.explanation(remedies=1)
print(explanation.as_text(top=1))

found = explanation.collectives[0]
remedy = found.remedies[0]
right = program.annotate({change.name: change.spec for change in remedy.changes}).partition()
before, after = wrong.report()["wire_bytes"], right.report()["wire_bytes"]
print(f"\n{found.op} of {found.value}: a step sends {before / 1024:.0f} KiB with it, {after / 1024:.0f} KiB without")
assert after < before / 2
assert found.value.split()[0].lstrip("%") not in [c["value"] for c in right.report()["collectives"]]
results = (jax.tree.leaves(p.compile()(params, tokens, targets)) for p in (wrong, right))
for a, b in zip(*results, strict=True):
    np.testing.assert_allclose(shardc.gather(a), shardc.gather(b), rtol=1e-4, atol=1e-6)
print("both programs agree")
