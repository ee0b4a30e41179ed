"""Eight virtual CPU devices and strict shapes."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Most of the suite's time is compilation of small programs. Benchmarks use XLA's default settings.
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
    """64-bit arithmetic during one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator with a fixed seed."""
    return np.random.default_rng(0)
