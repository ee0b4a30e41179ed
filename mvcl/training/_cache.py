"""Compiled programs that are kept between runs."""

import os
from pathlib import Path

import jax


def compilation_cache() -> None:
    """Keep compiled programs between runs, in MVCL_CACHE or ~/.cache/mvcl; not of several CPU devices.

    XLA's CPU backend orders the collectives of a program by an object that they share. In a program that is read
    back each has one of its own (jaxlib 0.10.2): nothing keeps two from running at once, and runs aborted.
    """
    if jax.default_backend() == "cpu" and jax.device_count() > 1:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    folder = os.environ.get("MVCL_CACHE") or str(Path.home() / ".cache" / "mvcl")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
