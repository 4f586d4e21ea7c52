"""Native code for array operations: `emit_kernel` and what callers ask about kernels.

Start with `kernel`; a folder has the kernels of one kind each, `loops.mapping` is the most general.
"""

from shardc.compiler.cpu.kernel import emit_kernel
from shardc.compiler.cpu.key import kernel_key
from shardc.compiler.cpu.support import supports

__all__ = ["emit_kernel", "kernel_key", "supports"]
