"""Settings of a command's process: the compilation cache, and on a CPU the allocator."""

from jax_transformer.runtime.compilation_cache import enable_compilation_cache
from jax_transformer.runtime.cpu import keep_freed_memory


def prepare_process() -> None:
    """Set up the process of a command; call it before JAX compiles or allocates anything."""
    enable_compilation_cache()
    keep_freed_memory()
