"""The linear probe of the papers: a linear layer trained by SGD on frozen features."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvcl.evaluation._probe import checked_rows


def sgd_probe(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    *,
    num_classes: int,
    learning_rate: float,
    epochs: int = 100,
    batch_size: int = 256,
    momentum: float = 0.9,
    seed: int = 0,
) -> float:
    """Test accuracy of a linear layer trained by SGD on all training labels.

    Cross-entropy, no weight decay, momentum, cosine decay from `learning_rate` to zero, zero initial weights; the
    features are not scaled. Koromilas 2025 uses learning rates 0.1 (CIFAR), 0.5 (ImageNet-100) and 1.6 (ImageNet),
    with new crops and flips each epoch; here each image has one feature vector.

    Args:
      train_features, test_features: (n, d) and (m, d) floating.
      train_labels, test_labels: (n,) and (m,) integers in [0, num_classes).
      num_classes: number of classes.
      learning_rate: initial value, > 0.
      epochs: passes over the training rows.
      batch_size: rows per step; at most n.
      momentum: of SGD.
      seed: of the order of the rows.

    Returns:
      Test accuracy in [0, 1].
    """
    x, y = checked_rows("train", train_features, train_labels, num_classes)
    test, answer = checked_rows("test", test_features, test_labels, num_classes)
    if x.shape[1] != test.shape[1]:
        raise ValueError(
            f"test_features must be as wide as train_features, got {test.shape[1]} and {x.shape[1]}"
        )
    for name, value in (("learning_rate", learning_rate), ("epochs", epochs), ("batch_size", batch_size)):
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")
    size = min(batch_size, len(x))
    steps = len(x) // size
    rule = optax.sgd(optax.cosine_decay_schedule(learning_rate, epochs * steps), momentum)
    weights = {"w": jnp.zeros((x.shape[1], num_classes)), "b": jnp.zeros(num_classes)}
    state = (weights, rule.init(weights))
    rows, labels = jnp.asarray(x), jnp.asarray(y)
    for epoch in range(epochs):
        order = np.random.default_rng((seed, epoch)).permutation(len(x))[: steps * size]
        state = _epoch(rule, state, rows, labels, jnp.asarray(order.reshape(steps, size)))
    weights = state[0]
    found = np.argmax(np.asarray(jnp.asarray(test) @ weights["w"] + weights["b"][None]), axis=1)
    return float(np.mean(found == answer))


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _epoch(
    rule: optax.GradientTransformation, state: tuple, x: jax.Array, y: jax.Array, order: jax.Array
) -> tuple:
    def loss(weights: dict[str, jax.Array], rows: jax.Array) -> jax.Array:
        logits = x[rows] @ weights["w"] + weights["b"][None]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y[rows]).mean()

    def step(state: tuple, rows: jax.Array) -> tuple[tuple, None]:
        weights, moments = state
        updates, moments = rule.update(jax.grad(loss)(weights, rows), moments, weights)
        return (optax.apply_updates(weights, updates), moments), None

    return jax.lax.scan(step, state, order)[0]
