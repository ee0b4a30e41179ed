"""scikit-learn's conventions, clusters of new rows, and numbers of clusters without labels."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import silhouette_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from mvcl import metrics
from mvcl.sklearn import MultiViewEncoder, SemClustering, cluster_numbers


@pytest.fixture(scope="module")
def table():
    """Two clusters, far apart in every column."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(20, 6)), 9 + rng.normal(size=(20, 6))])


def test_an_encoder_is_a_step_of_a_pipeline(table):
    encoder = MultiViewEncoder([slice(0, 2), [2, 3, 5]], widths=(4,), epochs=2)
    pipeline = make_pipeline(StandardScaler(), clone(encoder).set_params(epochs=1))
    assert pipeline.fit_transform(table).shape == (40, 8)
    assert pipeline[1:].get_feature_names_out()[0] == "multiviewencoder0"


def test_clusters_of_new_rows_and_their_number(table):
    rows = np.arange(40)
    found = SemClustering(2, hidden=(8,), pretrain_epochs=1, epochs=2).fit(table[rows % 4 > 0])
    assert found.view_weights_.shape == (2, 2)
    np.testing.assert_array_equal(found.predict(table)[rows % 4 > 0], found.labels_)
    scores = cluster_numbers(found, table, (2,), repeats=1)
    assert list(scores.index) == [2]
    assert scores.abs().to_numpy().max() <= 1
    z = found.transform(table)
    assert scores.silhouette[2] == pytest.approx(silhouette_score(z, metrics.k_means(z, 2)[0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        MultiViewEncoder(widths=(8,), epochs=2),
        # check_clustering needs right clusters
        SemClustering(2, hidden=(32,), pretrain_epochs=20, epochs=60),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_conventions_of_scikit_learn(estimator):
    check_estimator(estimator, on_skip=None)
