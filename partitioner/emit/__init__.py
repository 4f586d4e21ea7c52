"""Layouts of arrays over the mesh, and writing the instructions of the per-device program.

Start with `layout`; `emitter` has what every rule needs: coordinates, masks, collectives.
"""
