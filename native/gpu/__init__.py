"""GPUs: targets, the code of one thread of a grid, assembling it, emulating it, and the driver's functions."""
