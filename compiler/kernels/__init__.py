"""Native code for array operations: `emit_kernel` and what callers ask about kernels."""

from shardc.compiler.kernels.kernel import emit_kernel
from shardc.compiler.kernels.key import kernel_key
from shardc.compiler.kernels.support import supports

__all__ = ["emit_kernel", "kernel_key", "supports"]
