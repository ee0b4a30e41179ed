"""Metrics of embeddings, and bounds on their mutual information.

An argument of another shape, dtype or value than its docstring says raises a `ValueError` that names it. With
`normalize` vectors are projected onto the unit sphere first; zero stays zero.
"""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.metrics._geometry import alignment, effective_rank, lidar, uniformity, wasserstein_uniformity
    from mvcl.metrics._information import Interval, best_gaussian_multiplicity, expected_info_nce
    from mvcl.metrics._information import gaussian_information, generalized_nwj_bound, group_scores
    from mvcl.metrics._information import info_nce_bound, interval, multi_crop_bound, nwj_bound
    from mvcl.metrics._information import optimal_multiplicity, printed_poly_view_bound, relative_compute
    from mvcl.metrics._neighbours import adjusted_rand_index, centres, clustering_accuracy, k_means
    from mvcl.metrics._neighbours import nearest_centre, normalized_mutual_information, purity, recall_at
    from mvcl.metrics._neighbours import volume_recall_at, weighted_knn
    from mvcl.metrics._partial import Parts, information_bounds, information_parts, table_information
    from mvcl.metrics._partial import union_information

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
