"""Eight virtual CPU devices and strict shapes."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Most of the suite's time is compilation; the programs are small. What is measured of a program is measured with
# XLA's own settings in the benchmarks.
os.environ["XLA_FLAGS"] = " ".join(
    [
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
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
    """64-bit arithmetic for the length of one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of the same numbers in every test."""
    return np.random.default_rng(0)
