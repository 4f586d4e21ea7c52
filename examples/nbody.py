"""Bodies that attract each other, all pairs, by the leapfrog method.

Run `python examples/nbody.py [BODIES] [STEPS]`, or the same behind `shardc mpiexec -n 4`: each rank moves its bodies.
`examples/by_hand/nbody.py` is the same with mpi4py.
"""

import sys
import time

import shardc
import shardc.numpy as np

BODIES, STEPS = (int(a) for a in sys.argv[1:3] or (1024, 4))
CALLS, DT, SOFTENING = 4, 0.001, 0.05


def acceleration(position, mass):
    away = position[None, :, :] - position[:, None, :]
    inverse = ((away**2).sum(axis=2) + SOFTENING**2) ** -1.5
    return (away * (mass * inverse)[:, :, None]).sum(axis=1)


@np.jit
def advance(position, velocity, mass):
    for _ in range(STEPS):
        velocity += 0.5 * DT * acceleration(position, mass)
        position += DT * velocity
        velocity += 0.5 * DT * acceleration(position, mass)
    return position, velocity, mass


i = np.arange(BODIES)
angle = 2.399963 * i  # the golden angle: a spiral ball
z = 1 - (2 * i + 1) / BODIES
position = np.stack([np.sqrt(1 - z * z) * np.cos(angle), np.sqrt(1 - z * z) * np.sin(angle), z], axis=1)
velocity = np.stack([-position[:, 1], position[:, 0], 0.1 * z], axis=1)
mass = (1 + i % 3) / BODIES
state = position, velocity, mass
state = advance(*state)  # compiles
start = time.perf_counter()
for _ in range(CALLS - 1):
    state = advance(*state)
took = (time.perf_counter() - start) / (STEPS * (CALLS - 1))
position, velocity, mass = state
momentum, energy = (mass * velocity[:, 2]).sum(), 0.5 * np.sum(mass[:, None] * velocity**2)
if shardc.process_index() == 0:
    print(f"nbody: kinetic energy {energy:.11g}, momentum {momentum:.9g}")
    print(f"{took * 1e3:.3f} ms a step")
