"""The PJRT plug-in: unmodified JAX programs run on shardc, with ``JAX_PLATFORMS=shardc``.

Start with `plugin`, which JAX finds; `abi` has the interface's structures, `native` the functions that JAX calls.
"""
