"""Estimators of scikit-learn: an encoder of views, and clusters of views by SEM; numbers of clusters without labels."""

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics import silhouette_score
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from mvcl import losses, methods, metrics, models
from mvcl.training import AdamW, Encoder, Output, Train, fit

__all__ = ["MultiViewEncoder", "SemClustering", "cluster_numbers"]


class _OfViews(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What the estimators have in common: options of training, views of X, and their features.

    X is one table (n, d), whose columns are split into views, or views as `mvcl.fit` takes them.
    """

    _output: Output
    encoder_: Encoder

    def _given(self, X: Any, *, reset: bool = False) -> Any:
        several = isinstance(X, list) and X and all(np.ndim(view) > 1 for view in X)
        if several or (isinstance(X, Mapping) and not issparse(X)):  # scipy has a sparse dict
            return X
        table = validate_data(self, X, reset=reset, dtype=np.float64, ensure_min_samples=2 if reset else 1)
        columns, d = self.views, table.shape[1]
        if isinstance(columns, int):
            if not 2 <= columns <= d:
                raise ValueError(f"views must be from 2 to n_features = {d} groups of columns, got {columns}")
            columns = np.array_split(np.arange(d), columns)
        return {f"columns {i + 1}": table[:, of].reshape(len(table), -1) for i, of in enumerate(columns)}

    def _train(self, X: Any, objective: Any, **fields: Any) -> np.ndarray:
        seed = int(check_random_state(self.random_state).randint(1 << 30))
        train = Train(epochs=self.epochs, batch_size=self.batch_size, seed=seed, evaluate_every=0)
        given = self._given(X, reset=True)
        self.encoder_ = fit(given, objective, train=train, **fields)
        features = self.encoder_(given, output=self._output)
        self._n_features_out = features.shape[1]
        return features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # features are float32
        return tags

    def transform(self, X: Any) -> np.ndarray:
        """Features (n, d) float32 of all views together."""
        check_is_fitted(self)
        return self.encoder_(self._given(X), output=self._output)


class MultiViewEncoder(_OfViews):
    """An encoder of each view, trained by `mvcl.fit`: `fit` and `transform`.

    Features are those of the views, side by side.
    """

    _output: Output = "encoder"

    def __init__(
        self,
        views: Any = 2,
        *,
        objective: Any = "mv_infonce",
        widths: tuple[int, ...] = (256, 64),
        epochs: float = 100,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        random_state: Any = 0,
    ) -> None:
        """Options, of which those of `SemClustering` mean the same.

        Args:
          views: of one table, the number of groups of consecutive columns, or a list of indices or slices of columns.
          objective: a name of `losses.objectives()`, or a function of embeddings.
          widths: of the layers of each encoder.
          epochs, batch_size: of training; a smaller table is one batch.
          learning_rate: of AdamW.
          random_state: as scikit-learn's.
        """
        self.views, self.objective, self.widths, self.epochs = views, objective, widths, epochs
        self.batch_size, self.learning_rate, self.random_state = batch_size, learning_rate, random_state

    def fit(self, X: Any, y: Any = None) -> "MultiViewEncoder":
        """Train on X; y is not used."""
        optimizer = AdamW(learning_rate=self.learning_rate)
        self._train(X, self.objective, encoder=models.MLP(widths=self.widths), optimizer=optimizer)
        return self


class SemClustering(ClusterMixin, _OfViews):
    """Clusters of views by SEM (Xu 2023): `fit_predict`, `labels_`, and `predict` of new rows.

    Training is that of `method:sem` by default: contrastive epochs after those of reconstruction. K-means of the
    embeddings gives the clusters. `cluster_centers_` are their means, `view_weights_` (k, k) is W.
    """

    _output: Output = "head"

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        views: Any = 2,
        pretrain_epochs: int = 100,
        hidden: tuple[int, ...] = (500, 500, 2000),
        epochs: float = 150,
        batch_size: int = 256,
        learning_rate: float = 3e-4,
        random_state: Any = 0,
    ) -> None:
        """Options; the others are those of `MultiViewEncoder`.

        Args:
          n_clusters: at least 1, of which W takes 2.
          pretrain_epochs: of `epochs`, those with reconstruction only.
          hidden: widths of each autoencoder's hidden layers.
        """
        self.n_clusters, self.views, self.hidden = n_clusters, views, hidden
        self.pretrain_epochs, self.epochs = pretrain_epochs, epochs
        self.batch_size, self.learning_rate, self.random_state = batch_size, learning_rate, random_state

    def fit(self, X: Any, y: Any = None) -> "SemClustering":
        """Train on X and cluster it; y is not used."""
        pair = partial(losses.nt_xent, temperature=1.0)  # as xu/sem
        pretrain, clusters = self.pretrain_epochs, max(2, self.n_clusters)
        method = methods.Sem(clusters=clusters, pretrain_epochs=pretrain, hidden=self.hidden)
        optimizer = AdamW(learning_rate=self.learning_rate, end_learning_rate=self.learning_rate)
        options: dict[str, Any] = {"method": method, "optimizer": optimizer, "scaling": ("minmax",)}
        z = self._train(X, losses.all_pairs(pair, pairs="all", reduction="sum"), **options)
        found = metrics.k_means(z, self.n_clusters)[0] if self.n_clusters > 1 else np.zeros(len(z), int)
        _, self.labels_ = np.unique(found, return_inverse=True)
        self.cluster_centers_ = metrics.centres(z, self.labels_)
        self.view_weights_ = np.asarray(self.encoder_.state["statistics"]["weights"])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The nearest cluster (n,) of each row."""
        return metrics.nearest_centre(self.transform(X), self.cluster_centers_)


def cluster_numbers(
    estimator: MultiViewEncoder | SemClustering,
    X: Any,
    numbers: Iterable[int] = range(2, 11),
    *,
    repeats: int = 5,
    seed: int = 0,
) -> pd.DataFrame:
    """Three scores, without labels, of K-means of a fitted estimator's features of X, for numbers of clusters.

    `silhouette` is of all views together (Rousseeuw 1987, 10.1016/0377-0427(87)90125-7), of at most 2,000 rows;
    `agreement` the mean adjusted Rand index of the clusters of two views, each clustered alone, over the rows that have
    both; `stability` that of two clusterings of all rows by the centres of two random halves, over `repeats` pairs.
    Higher is better.
    """
    encoder, given = estimator.encoder_, estimator._given(X)
    whole, split = estimator.transform(X), encoder.split(given)
    there = np.ones((len(whole), len(encoder.views)), bool) if split.present is None else split.present
    each: Output = "head_views" if estimator._output == "head" else "views"
    views = encoder(given, output=each).reshape(*there.shape, -1)
    rng, rows = np.random.default_rng(seed), []
    for number in numbers:
        labels = np.full(there.T.shape, -1)  # of missing views
        for v, here in enumerate(there.T):
            labels[v, here] = metrics.k_means(views[here, v], number, seed=seed)[0]
        agreement = []
        for pair in combinations(labels, 2):
            both = (pair[0] >= 0) & (pair[1] >= 0)
            agreement.append(metrics.adjusted_rand_index(pair[0][both], pair[1][both]))
        stability = []
        for _ in range(repeats):
            halves = np.array_split(rng.permutation(len(whole)), 2)
            found = [metrics.k_means(whole[half], number, seed=seed)[0] for half in halves]
            centres = [metrics.centres(whole[half], of) for half, of in zip(halves, found)]
            found = [metrics.nearest_centre(whole, of) for of in centres]
            stability.append(metrics.adjusted_rand_index(*found))
        joint = metrics.k_means(whole, number, seed=seed)[0]
        score = silhouette_score(whole, joint, sample_size=min(len(whole), 2000), random_state=seed)
        rows.append((number, score, np.mean(agreement), np.mean(stability)))
    names = ["clusters", "silhouette", "agreement", "stability"]
    return pd.DataFrame(rows, columns=names).set_index("clusters")
