"""Programs for tests of the service: small ones that all differ, and large ones that take a while."""

from __future__ import annotations

__all__ = ["large", "small"]

_SUM = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""


def small(number: int) -> str:
    """A product over two devices, its contracted dimension split, and a sum; another program for every ``number``."""
    return f"""HloModule small_{number}, num_partitions=2

{_SUM}
ENTRY main {{
  x = f32[8,{16 + 2 * number}]{{1,0}} parameter(0), sharding={{devices=[1,2]<=[2]}}, metadata={{op_name="x"}}
  w = f32[{16 + 2 * number},4]{{1,0}} parameter(1), sharding={{devices=[2,1]<=[2]}}, metadata={{op_name="w"}}
  y = f32[8,4]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  zero = f32[] constant({number})
  ROOT r = f32[8]{{0}} reduce(y, zero), dimensions={{1}}, to_apply=sum
}}
"""


def large(layers: int, salt: int = 0) -> str:
    """Layers that all differ in their shapes, so that each is compiled by itself: some 50 ms each."""
    sizes = [64 + 2 * (salt + n) for n in range(layers + 1)]
    lines = [
        f'  h0 = f32[32,{sizes[0]}]{{1,0}} parameter(0), sharding={{devices=[2,1]<=[2]}}, metadata={{op_name="x"}}'
    ]
    for n in range(layers):
        shape = f"f32[{sizes[n]},{sizes[n + 1]}]{{1,0}}"
        out = f"f32[32,{sizes[n + 1]}]{{1,0}}"
        lines += [
            f'  w{n} = {shape} parameter({n + 1}), metadata={{op_name="w{n}"}}',
            f"  p{n} = {out} dot(h{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            f"  t{n} = {out} tanh(p{n})",
            f"  e{n} = {out} exponential(t{n})",
            f"  {'ROOT ' if n == layers - 1 else ''}h{n + 1} = {out} subtract(e{n}, t{n})",
        ]
    body = "\n".join(lines)
    return f"HloModule large_{layers}_{salt}, num_partitions=2\n\nENTRY main {{\n{body}\n}}\n"
