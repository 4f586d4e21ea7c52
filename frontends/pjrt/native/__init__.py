"""The native part of the plug-in: what JAX holds handles of, in the low-level language (`shardc.native.lowlevel`).

Start with `records`, which says what lies in memory, and `library`, which loads the code and lets Python use it.
`memory_pool` gives memory; `errors`, `events`, `blocks` and `buffers` are the objects that are made and released all
the time, `devices` those that stay, `programs` what a loaded program is. `execute` runs these: `tasks` are
their steps, `queue` has the steps' order. `entries` are the functions that the interface points at: native ones, and
for the rest one that calls Python (`trampoline`).
"""
