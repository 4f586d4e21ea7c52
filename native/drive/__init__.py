"""The drive loop: it runs a program's devices from collective to collective without Python.

Start with `drive_loop`.
"""
