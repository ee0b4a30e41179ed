"""Metrics of embeddings, and bounds on their mutual information."""

from mvcl.metrics._clustering import adjusted_rand_index as adjusted_rand_index
from mvcl.metrics._clustering import clustering_accuracy as clustering_accuracy
from mvcl.metrics._clustering import normalized_mutual_information as normalized_mutual_information
from mvcl.metrics._clustering import purity as purity
from mvcl.metrics._information import best_gaussian_multiplicity as best_gaussian_multiplicity
from mvcl.metrics._information import expected_info_nce as expected_info_nce
from mvcl.metrics._information import gaussian_information as gaussian_information
from mvcl.metrics._information import generalized_nwj_bound as generalized_nwj_bound
from mvcl.metrics._information import group_scores as group_scores
from mvcl.metrics._information import info_nce_bound as info_nce_bound
from mvcl.metrics._information import information_gap as information_gap
from mvcl.metrics._information import multi_crop_bound as multi_crop_bound
from mvcl.metrics._information import nwj_bound as nwj_bound
from mvcl.metrics._information import optimal_multiplicity as optimal_multiplicity
from mvcl.metrics._information import printed_poly_view_bound as printed_poly_view_bound
from mvcl.metrics._information import relative_compute as relative_compute
from mvcl.metrics._k_means import k_means as k_means
from mvcl.metrics._neighbours import weighted_knn as weighted_knn
from mvcl.metrics._rank import effective_rank as effective_rank
from mvcl.metrics._rank import matrix_rank as matrix_rank
from mvcl.metrics._sphere import alignment as alignment
from mvcl.metrics._sphere import mean_cosines as mean_cosines
from mvcl.metrics._sphere import uniformity as uniformity
from mvcl.metrics._sphere import wasserstein_uniformity as wasserstein_uniformity
