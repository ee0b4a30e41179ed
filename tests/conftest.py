"""Eight virtual CPU devices and strict shapes."""

import gc
import itertools
import os
import pathlib
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Most of the suite's time is compilation of small programs. Benchmarks use XLA's default settings.
os.environ["XLA_FLAGS"] = " ".join(
    [
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
        os.environ.get("XLA_FLAGS", ""),
    ]
)

import jax
import numpy as np
import pytest

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_enable_compilation_cache", False)  # see training.compilation_cache


@pytest.fixture
def x64():
    """64-bit arithmetic during one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator with a fixed seed."""
    return np.random.default_rng(0)


_TESTS = itertools.count(1)
_MAPS = pathlib.Path("/proc/self/maps")


@pytest.fixture(autouse=True)
def compiled_programs() -> Iterator[None]:
    """Drops compiled programs before the process has as many memory maps as Linux allows by default, 65,530.

    Every program has some. At the limit the compiler ends the process with a segmentation fault.
    """
    yield
    if next(_TESTS) % 5 == 0 and _MAPS.exists() and len(_MAPS.read_bytes().splitlines()) > 30_000:
        jax.clear_caches()
        gc.collect()
