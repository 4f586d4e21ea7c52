"""examples/nbody.py with mpi4py: each rank moves its own bodies; positions and masses of all by Allgatherv."""

import sys
import time

import numpy as np
from mpi4py import MPI

BODIES, STEPS = (int(a) for a in sys.argv[1:3] or (1024, 4))
CALLS, DT, SOFTENING = 4, 0.001, 0.05
comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
edges = [BODIES * r // ranks for r in range(ranks + 1)]
first, last = edges[rank], edges[rank + 1]
counts, starts = 3 * np.diff(edges), 3 * np.array(edges[:-1])
everyone = np.empty((BODIES, 3))


def acceleration(position, mass):
    comm.Allgatherv(position, [everyone, counts, starts, MPI.DOUBLE])
    away = everyone[None, :, :] - position[:, None, :]
    inverse = ((away**2).sum(axis=2) + SOFTENING**2) ** -1.5
    return (away * (mass * inverse)[:, :, None]).sum(axis=1)


def advance(position, velocity, mass):
    for _ in range(STEPS):
        velocity += 0.5 * DT * acceleration(position, mass)
        position += DT * velocity
        velocity += 0.5 * DT * acceleration(position, mass)
    return position, velocity, mass


i = np.arange(first, last)
angle = 2.399963 * i
z = 1 - (2 * i + 1) / BODIES
position = np.stack([np.sqrt(1 - z * z) * np.cos(angle), np.sqrt(1 - z * z) * np.sin(angle), z], axis=1)
velocity = np.stack([-position[:, 1], position[:, 0], 0.1 * z], axis=1)
mass = (1 + np.arange(BODIES) % 3) / BODIES
state = advance(position, velocity, mass)
start = time.perf_counter()
for _ in range(CALLS - 1):
    state = advance(*state)
took = (time.perf_counter() - start) / (STEPS * (CALLS - 1))
position, velocity, mass = state
own = mass[first:last, None]
momentum = comm.allreduce((own * velocity)[:, 2].sum())
energy = 0.5 * comm.allreduce(np.sum(own * velocity**2))
if rank == 0:
    print(f"nbody: kinetic energy {energy:.11g}, momentum {momentum:.9g}")
    print(f"{took * 1e3:.3f} ms a step")
