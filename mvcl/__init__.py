"""Multi-view contrastive representation learning in JAX."""

__version__ = "0.1.0"
