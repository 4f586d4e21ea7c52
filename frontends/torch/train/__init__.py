"""Training steps of PyTorch modules: forward, backward and update as one program.

Start with `train_step`; `joint` makes the graph of forward and backward, `optimizers` has the updates.
"""
