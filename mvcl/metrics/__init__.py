"""Arrays to numbers: what a set of embeddings is like, and bounds on what it can know."""

from mvcl.metrics._neighbours import weighted_knn
from mvcl.metrics._rank import effective_rank, matrix_rank

__all__ = ["effective_rank", "matrix_rank", "weighted_knn"]
