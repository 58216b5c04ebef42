"""XLA's flags for tests: what runs once need not be fast, and is compiled in half the time so.

The smoke test and the notebook that trains run as for users; `XLA_FLAGS= make test` runs
everything so. Any XLA_FLAGS that are given stand in the place of these.
"""

from importlib.metadata import version

QUICK_FLAGS = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
]
if version("jaxlib").startswith("0.10."):
    # Its older way to write loops is the quicker to compile; later versions have the newer alone.
    QUICK_FLAGS += ["--xla_cpu_use_fusion_emitters=false"]
