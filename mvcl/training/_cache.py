"""The compilation cache."""

import os
from pathlib import Path

import jax


def compilation_cache() -> None:
    """Cache compiled programs in MVCL_CACHE or ~/.cache/mvcl, except with several CPU devices.

    On CPU, XLA orders the collectives of a program through a shared object. In a program loaded from the cache each
    collective has its own object (jaxlib 0.10.2), so two may run at once, which aborted runs.
    """
    if jax.default_backend() == "cpu" and jax.device_count() > 1:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    folder = os.environ.get("MVCL_CACHE") or str(Path.home() / ".cache" / "mvcl")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
