"""SEM: one autoencoder per view, and pairs of views with computed weights."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from itertools import combinations_with_replacement
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from mvcl import _checks, _numerics, losses, metrics, models
from mvcl._progress import track
from mvcl.methods._method import Batch, Inputs, Learner, LossAndMore, Module, Specification, key_of_batch
from mvcl.methods._multi_encoder import separate
from mvcl.methods._objective import Measures, OfViews

_KINDS: dict[str, Literal["none", "noise", "masked"]] = {"ae": "none", "dae": "noise", "mae": "masked"}
_ENCODE_ROWS = 1024  # rows encoded at once over the whole split
_PAIR_ROWS = 256  # rows of the batches over which a refresh measures the pairs' losses
_WATCH_STARTS = 10  # K-means starts of a record: for all views, and at most for a view if W is not computed
_TRAINING = ("restart_optimizer", "last_batch", "uniform_biases", "k_means_starts")
_PAPER = (False, False, False, 10)  # paper, Algorithm 1: one Adam, N/n steps; biases and starts are ours
_RELEASED = (True, True, True, 100)  # released, train.py, network.py, metric.py


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sem:
    """SEM (Xu 2023, Algorithm 1): one autoencoder per view, and pairs of views weighted by their shared information.

        Σ_{m,n} W_mn L(z_m, z_n) + λ Σ_v R_v

    The method has its own encoders; `encoder` and `head` are not used. Training starts with reconstruction only. Then W
    is computed on the hidden features H, later every few epochs on the embeddings Z, and is constant in between. The
    objective is `all_pairs` of any pair loss; the released code has pairs=all, reduction=sum. R is a mean over
    entries, as in the released code; Eq. 8 has the sum.
    """

    paper: bool = False
    """Train as Algorithm 1 says: without restart_optimizer, last_batch and uniform_biases, and with 10 K-means starts,
    which is ours."""
    as_released: bool = False
    """Train as the released code does (SubmissionsIn/SEM, train.py), which the paper does not describe: with
    restart_optimizer, last_batch and uniform_biases, and 100 K-means starts: the defaults."""
    restart_optimizer: bool = True
    """Start with new moments of the gradients in every contrastive epoch after the first, as the released code does. In
    the first, the embedding layer's are new in any case: it is not pre-trained."""
    last_batch: bool = True
    """Use the examples that are left at the end of an epoch as a smaller last batch, if they are two or more; otherwise
    they are not used in that epoch."""
    uniform_biases: bool = True
    """Draw initial biases from U(±1/sqrt(inputs)), as PyTorch does; otherwise they are zero."""
    k_means_starts: int = 100
    """K-means starts for the clusters of W."""
    mini_batch_above: int = 10_000
    """K-means takes mini-batches of 5,000 rows for more examples than this, as the released code; 0: never."""

    weights: Literal["cmi", "jsd", "mmd", "none"] = "cmi"
    """Weight of a pair of views by the mutual information of their clusters, the Jensen-Shannon divergence of their
    features, the maximum mean discrepancy, or none (all ones)."""
    lam: float = 1.0
    """λ, the weight of the reconstruction errors; 0: no reconstruction after pre-training."""
    reconstruction: Literal["ae", "dae", "mae"] = "ae"
    """Input of the autoencoders: unchanged, with unit Gaussian noise added, or with 30% of a batch's entries set to
    zero."""
    pretrain_epochs: int = 100
    """Epochs of pre-training with reconstruction only."""
    update_epochs: int = 50
    """S, epochs between computations of W."""
    watch_epochs: int = 0
    """Epochs between records of the views' clusters, for the report's curves; 0: only when W is computed."""
    clusters: int = 0
    """Number of K-means clusters of each view, for W; 0: the number of classes. The recorded clusters of all views
    together are as many as the classes where there are labels."""
    hidden: tuple[int, ...] = (500, 500, 2000)
    """Widths of an encoder's hidden layers; the decoder has them in reverse."""
    features: int = 512
    """Length of the hidden features H of a view."""
    embedding: int = 128
    """Length of the embedding Z of a view."""

    def build(self, spec: Specification) -> Learner:
        if not spec.given:
            what = "method sem needs examples with given views, such as tables of features"
            raise ValueError(f"{what}, not images; for those use method:simclr")
        spec.whole_batch("sem")
        if self.weights != "none" and not losses.takes(spec.objective).pair_weights:
            what = f"method.weights needs objective all_pairs, got {losses.name(spec.objective)}"
            raise ValueError(f"{what}; use objective:all_pairs, or --method.weights none")
        from_0 = ("pretrain_epochs", "watch_epochs", "clusters", "lam", "mini_batch_above")
        from_1 = ("update_epochs", "features", "embedding", "k_means_starts", "hidden")
        least = dict.fromkeys(from_0, "[0, inf)") | dict.fromkeys(from_1, "[1, inf)")
        _checks.fields("method", self, **least)
        clusters = self.clusters or spec.classes
        if clusters < 2:
            raise ValueError(f"method.clusters must be at least 2 for data without classes, got {clusters}")
        if self.paper and self.as_released:
            raise ValueError("method.paper and method.as_released exclude each other, got both")
        chosen: tuple[Any, ...] = _RELEASED if self.as_released else _PAPER if self.paper else ()
        options = dataclasses.replace(self, **dict(zip(_TRAINING, chosen)))
        return SemLearner(spec, options, clusters)


class SemLearner(Learner):
    has_level = False
    one_encoder = False
    restarts_parts = True

    def __init__(self, spec: Specification, options: Sem, clusters: int) -> None:
        self.options, self.clusters = options, clusters
        self.dimension, self.last_batch = options.embedding, options.last_batch
        self.together = spec.classes if spec.classes > 1 else clusters  # clusters of all views together
        self.k = len(spec.shapes)
        self.weighs = losses.takes(spec.objective).pair_weights
        self.pair = jax.jit(losses.unwrap(spec.objective)[1]["pair"]) if self.weighs else None
        self.corruption = _KINDS[options.reconstruction]
        widths = tuple(int(np.prod(shape)) for shape in spec.shapes)
        network = partial(models.Autoencoders, widths, options.hidden, options.features, options.embedding)
        network = partial(network, uniform_biases=options.uniform_biases, dtype=spec.dtype)
        Module.__init__(self, lambda key: network(rngs=nnx.Rngs(key)))

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        draws = jax.random.key_data(jax.random.fold_in(key, 1))
        return nnx.state(self.fresh(key), nnx.Param), {"weights": jnp.ones((self.k, self.k)), "key": draws}

    def network(self, params: Any, statistics: Any) -> models.Autoencoders:
        return self.merge(params)

    def loss(self, params: Any, statistics: Any, batch: Batch, objective: OfViews) -> LossAndMore:
        net, lam, inputs = self.network(params, statistics), self.options.lam, batch.inputs
        x, there = _tables(batch.draw(batch.inputs), inputs.get("present"))
        x, there = [view[: batch.examples] for view in x], there[:, : batch.examples]
        corrupted = x
        if self.corruption != "none":  # new noise at every step
            key = key_of_batch(statistics, inputs)
            keys = [jax.random.fold_in(key, view) for view in range(self.k)]
            corrupted = [losses.corrupted(*of_view, self.corruption) for of_view in zip(keys, x)]
        extra = batch.mask | ({"weights": statistics["weights"]} if self.weighs else {})

        def restored(given: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
            h = net.encode(given)
            return h, _reconstruction(x, net.decode(h), there)

        def contrast(h: jax.Array) -> tuple[jax.Array, Measures, jax.Array]:
            # The slope is computed here: what a `cond` keeps for its derivative, it fills with zeros in pre-training.
            z = net.embed(h)
            constant = lax.stop_gradient(z)
            of = jax.value_and_grad(partial(objective, **extra), has_aux=True)(constant)
            (value, measures), slope = of
            return value + jnp.vdot(slope, z - constant), measures, z

        hidden = jax.ShapeDtypeStruct((self.k, x[0].shape[0], self.options.features), jnp.float32)
        shapes = jax.eval_shape(contrast, hidden)

        def pretraining() -> Any:
            h, error = restored(corrupted)
            measures = jax.tree.map(jnp.zeros_like, shapes[1])
            return error, error, jnp.zeros(()), measures, net.embed(h)

        def training() -> Any:
            if corrupted is x and lam:
                h, error = restored(x)
            else:  # the objective gets clean views, as in the released code
                h, error = net.encode(x), restored(corrupted)[1] if lam else jnp.zeros(())
            value, measures, z = contrast(h)
            return value + lam * error, error, value, measures, z

        # One program for both phases; the unselected branch is not computed.
        chosen = lax.cond(inputs["epoch"][0] >= self.options.pretrain_epochs, training, pretraining)
        total, error, value, measures, z = chosen
        return total, (statistics, z, {"reconstruction": error, "contrast": value, **measures})

    def features(self, params: Any, statistics: Any, inputs: Inputs, output: str) -> jax.Array:
        net = self.network(params, statistics)
        x, there = _tables(inputs["views"], inputs.get("present"))
        h = net.encode(x)
        if output in ("encoder", "views"):
            return _concatenated(h, there)
        return _concatenated(net.embed(h), there, fill=output == "head")

    def restarts(self, step: int, steps_per_epoch: int) -> tuple[str, ...]:
        """The embedding layer before the first contrastive epoch, as Algorithm 1 pre-trains the autoencoders only; with
        `restart_optimizer` everything before each later one."""
        epoch, within = divmod(step, steps_per_epoch)
        since = epoch - self.options.pretrain_epochs
        if within or since < 0:
            return ()
        later = ("encoder", "head", "decoder") if self.options.restart_optimizer else ()
        return later if since else ("head",)

    def due(self, step: int, steps_per_epoch: int) -> bool:
        watched = self.options.watch_epochs * steps_per_epoch
        return (watched > 0 and step % watched == 0) or self._weighted(step, steps_per_epoch)

    def refresh(
        self, params: Any, statistics: Any, inputs: Inputs, step: int, steps_per_epoch: int
    ) -> tuple[Any, dict[str, Any]]:
        views = inputs["views"]
        there = np.asarray(inputs.get("present", np.ones((len(views[0]), self.k), bool)))
        blocks = range(0, len(there), _ENCODE_ROWS)
        parts = []
        for i in track(blocks, "encoding", len(blocks), f"batches of {_ENCODE_ROWS}"):
            rows = slice(i, i + _ENCODE_ROWS)
            found = self._encode_and_embed(params, tuple(v[rows] for v in views), there[rows])
            parts.append(jax.device_get(found))
        h, z = (np.concatenate(each, axis=1) for each in zip(*parts))
        of_hidden = step <= self.options.pretrain_epochs * steps_per_epoch
        compared, weighted = h if of_hidden else z, self._weighted(step, steps_per_epoch)
        starts = self.options.k_means_starts
        if not weighted or self.options.weights != "cmi":
            starts = min(starts, _WATCH_STARTS)
        k_means = partial(metrics.k_means, mini_batch_above=self.options.mini_batch_above)
        labels = np.full(there.T.shape, -1, np.int32)  # -1: missing views
        for view, here, into in track(zip(compared, there.T, labels), "K-means", self.k, "views"):
            into[here] = k_means(view[here], min(self.clusters, int(here.sum())), starts=starts)[0]
        joined = np.asarray(_concatenated(jnp.asarray(compared), jnp.asarray(there.T), fill=not of_hidden))
        together = k_means(joined, min(self.together, len(joined)), starts=_WATCH_STARTS)[0]
        record = {"clusters": labels, "clusters_all": together}
        record |= pair_measures(z, there.T, self.pair)
        if not weighted:
            return statistics, record
        weights = view_weights(compared, labels, self.options.weights, there.T)
        return {**statistics, "weights": jnp.asarray(weights)}, {"weights": weights, **record}

    @partial(jax.jit, static_argnums=0)
    def _encode_and_embed(self, params: Any, views: Any, present: jax.Array) -> tuple[jax.Array, jax.Array]:
        net = self.network(params, {})
        h = net.encode(_tables(views, present)[0])
        return h, net.embed(h)

    def _weighted(self, step: int, steps_per_epoch: int) -> bool:
        since = step - self.options.pretrain_epochs * steps_per_epoch
        return since >= 0 and since % (self.options.update_epochs * steps_per_epoch) == 0


def pair_measures(z: np.ndarray, present: np.ndarray, pair: losses.Loss | None) -> dict[str, np.ndarray]:
    """The loss and the similarity of each pair of views, as Figs. 2b and 5b of Xu 2023 have them.

    Of (k, n, d) unit vectors `z`: "cosines" (k, k), means over the instances that have both views; "losses" (k, k), the
    mean of the pair loss, if given, of batches of 256 instances in order. NaN for pairs that fewer than two share.
    """
    k = len(z)
    cosines, values = np.full((k, k), np.nan), np.full((k, k), np.nan)
    for m, n in combinations_with_replacement(range(k), 2):
        both = np.flatnonzero(present[m] & present[n])
        if len(both) < 2:
            continue
        u, v = z[m, both], z[n, both]
        cosines[m, n] = cosines[n, m] = np.mean(np.sum(u * v, axis=1))
        if pair is not None:
            starts = range(0, len(both) - len(both) % _PAIR_ROWS or len(both), _PAIR_ROWS)
            batches = [pair(u[i : i + _PAIR_ROWS], v[i : i + _PAIR_ROWS]) for i in starts]
            values[m, n] = values[n, m] = np.mean(jax.device_get(batches))
    return {"cosines": cosines} if pair is None else {"cosines": cosines, "losses": values}


def view_weights(features: np.ndarray, labels: np.ndarray, kind: str, present: np.ndarray) -> np.ndarray:
    """W (k, k) of features, or for "cmi" of labels, by the instances that have both views; 0 if fewer than two."""
    k = len(features)
    if kind == "none":
        return np.ones((k, k), np.float32)
    of_features = {"jsd": losses.jsd_weights, "mmd": losses.mmd_weights}
    weigh = jax.jit(of_features[kind]) if kind in of_features else losses.cmi_weights
    of = labels if kind == "cmi" else features
    if present.all():
        return np.asarray(weigh(of), np.float32)
    weights = np.zeros((k, k), np.float32)
    for m, n in combinations_with_replacement(range(k), 2):
        here = present[m] & present[n]
        if here.sum() >= 2:
            weights[m, n] = weights[n, m] = weigh(of[[m, n]][:, here])[0, 1]
    return weights


def _tables(views: Any, present: jax.Array | None) -> tuple[list[jax.Array], jax.Array]:
    """k tables (n, d_v) with zeros for missing entries, and the (k, n) mask."""
    flat = [view.reshape((len(view), -1)).astype(jnp.float32) for view in separate(views)]
    there = jnp.ones((len(flat), len(flat[0])), bool) if present is None else present.T
    return [jnp.where(here[:, None], view, 0) for view, here in zip(flat, there)], there


def _reconstruction(x: Sequence[jax.Array], restored: Sequence[jax.Array], there: jax.Array) -> jax.Array:
    """Σ_v R_v, each the mean squared error over the entries of the instances that have the view."""
    error = jnp.zeros(())
    for a, b, here in zip(x, restored, there):
        total = jnp.sum(jnp.where(here[:, None], (a - b) ** 2, 0))
        error += total / (jnp.maximum(here.sum(), 1) * a.shape[1])
    return error


def _concatenated(h: jax.Array, there: jax.Array, *, fill: bool = False) -> jax.Array:
    """(k, n, d), (k, n) bool -> (n, k d); missing views are zero, with `fill` the direction of the others' sum."""
    h = jnp.where(there[..., None], h, 0)
    if fill:
        h = jnp.where(there[..., None], h, _numerics.unit(h.sum(0))[None])
    return h.swapaxes(0, 1).reshape((h.shape[1], -1))
