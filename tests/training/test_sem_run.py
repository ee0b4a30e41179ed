"""SEM from tables to clusters, on the command line."""

import json
import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from mvcl import cli, data, evaluation, losses, metrics
from mvcl.methods import Sem, _sem
from mvcl.studies import changed
from mvcl.training import AdamW, Config, Mesh, Train, _optimizers, _run, build, load, suited_to

# Xu 2023, the released settings: contrastive epochs of a round, rounds, views.
RECIPES = {
    "dha": (300, 1, 2),
    "ccv": (50, 4, 3),
    "nuswide": (25, 4, 5),
    "caltech": (100, 4, 6),
    "caltech_released": (100, 3, 6),
    "youtubevideo": (25, 1, 3),
    "handwritten": (50, 2, 6),
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_have_the_released_schedule(name):
    config = replace(load(f"xu/sem:{name}"), mesh=Mesh(data=1))
    epochs, rounds, views = RECIPES[name]
    outline = data.expected(config.data)
    config = suited_to(config, outline)
    method = config.method
    assert (method.pretrain_epochs, method.update_epochs) == (100, epochs)
    assert config.train.epochs == 100 + epochs * rounds
    assert (outline.spec.views, config.train.batch_size) == (views, 256)
    assert config.optimizer.learning_rate == config.optimizer.end_learning_rate == 3e-4
    _, options = losses.unwrap(config.objective)
    assert (options["pairs"], options["reduction"]) == ("all", "sum")
    assert losses.unwrap(options["pair"]) == (losses.nt_xent, {"temperature": 1.0})
    released = name != "handwritten"
    assert tuple(getattr(method, field) for field in _sem._TRAINING) == _sem._RELEASED
    assert (config.evaluation.runs, config.evaluation.starts) == ((1, 100) if released else (10, 10))
    assert config.train.precision == "float32"
    program = build(config, outline)
    steps = outline.examples / 256
    assert program.steps_per_epoch == (math.ceil(steps) if method.last_batch else math.floor(steps))
    due = program.learner.due
    assert {100 + epochs * r for r in range(rounds)} <= {e for e in range(100 + epochs * rounds) if due(e, 1)}


STARTS_AGAIN = Config(
    data=data.Synthetic(view_shapes=((6,), (9,))),
    objective=losses.all_pairs(partial(losses.nt_xent, temperature=1.0), None, "all", "sum"),
    method=Sem(pretrain_epochs=1, update_epochs=1, hidden=(4,), features=3, embedding=2, as_released=True),
    optimizer=AdamW(learning_rate=1e-3, end_learning_rate=1e-3),
    train=Train(epochs=3, batch_size=40),
    mesh=Mesh(data=1),
    evaluation=evaluation.Clustering(features="head"),
)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_parts_of_the_optimiser_start_again(clip):
    """A part that starts again has the first update of Adam, the learning rate by sign: that of the run's step, for the
    schedules of rate and decay go on; the other parts do as before, with one norm for the clip."""
    names = ("encoder", "head")
    ends = {"end_learning_rate": 0.0, "end_weight_decay": 0.1}
    options = AdamW(learning_rate=0.1, weight_decay=0.5, clip_norm=clip, **ends)
    build = partial(_optimizers.build, options, examples=8, steps=10, steps_per_epoch=5)
    rule, rate = build(parts=names)
    params = {name: {"kernel": jnp.ones((2, 2))} for name in names}
    opt, (whole, _) = rule.init(params), build()
    together = whole.init(params)
    for gradient in (1.0, 3.0):
        grown = jax.tree.map(lambda p, g=gradient: p * g, params)
        updates, opt = rule.update(grown, opt, params)
        expected, together = whole.update(grown, together, params)
        jax.tree.map(np.testing.assert_array_equal, updates, expected)  # parts alone change nothing
    state = _optimizers.restart(rule, {"params": params, "opt": opt, "step": 7}, ("head",))
    gradient = jax.tree.map(lambda p: -5 * p, params)
    updates, _ = rule.update(gradient, state["opt"], params)
    kept, _ = rule.update(gradient, opt, params)
    decay = 0.1 + 0.4 * 0.5 * (1 + math.cos(math.pi * 2 / 10))
    np.testing.assert_allclose(updates["head"]["kernel"], rate(2) * (1 - decay), rtol=1e-4)
    np.testing.assert_array_equal(updates["encoder"]["kernel"], kept["encoder"]["kernel"])
    assert abs(float(kept["head"]["kernel"][0, 0]) - rate(2) * (1 - decay)) > 0.01
    assert state["step"] == 7


def test_a_last_batch_needs_fitting_options():
    outline = data.Outline(1797, 10, data.ExampleSpec(((3,), (2,)), given=True))

    def built(change):
        return build(suited_to(changed(STARTS_AGAIN, change), outline), outline)

    assert built({"train.batch_size": 599}).steps_per_epoch == 3
    assert built({"train.batch_size": 449}).steps_per_epoch == 4  # the example that is left has no negatives
    with pytest.raises(ValueError, match="last batch of an epoch of 897 examples does not divide over 4"):
        built({"mesh.data": 4, "train.batch_size": 900})


def test_a_last_batch_that_does_not_divide_over_the_devices_is_that_of_one():
    """The rows that pad it count in no loss."""
    found = []
    for devices in (1, 4):
        run = _run.prepare(changed(STARTS_AGAIN, {"mesh.data": devices, "train.batch_size": 27}))
        state, left = run.program.init(), run.outline.examples % 27
        assert left % 4
        assert run.program.steps_per_epoch == run.outline.examples // 27 + 1
        sizes = set()
        for _, batch in zip(range(6), stream := _run.batches(run, 0)):
            sizes.add(len(batch["index"]))
            state, values = run.program.step(state, batch)
        stream.close()
        assert sizes == {-(-n // devices) * devices for n in (27, left)}
        found.append((state["params"], values["loss"]))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-5), *found)


@pytest.mark.slow
def test_two_commands_from_a_folder_of_tables(tmp_path, rng):
    """Two informative views and a noise view of three groups; a tenth of the entries is missing."""
    groups = np.repeat(["red", "green", "blue"], 40)
    (tmp_path / "in").mkdir()
    for name, width, signal in (("camera", 5, 1), ("radar", 4, 1), ("coin", 6, 0)):
        ids = [i for i in range(120) if name == "coin" or i % 10 != (0 if name == "camera" else 1)]
        table = pd.DataFrame(rng.normal(size=(len(ids), width)), [f"item{i}" for i in ids]).add_prefix(name)
        table.iloc[:, :3] += signal * 6 * np.eye(3)[np.array(ids) // 40]
        if name == "coin":
            table["label"] = groups
        table.to_csv(tmp_path / "in" / f"{name}.csv", index_label="id")
    run = str(tmp_path / "run")
    options = (
        "--optimizer.learning-rate 3e-3 --optimizer.end-learning-rate 3e-3 --train.epochs 120 --train.batch-size 40 "
        "--method.pretrain-epochs 80 --method.hidden 64 64 --method.features 16 --method.embedding 8"
    )
    command = ["train", "xu/sem:tables", "--data.path", str(tmp_path / "in"), "--workdir", run]
    assert cli.main([*command, *options.split()]) == 0
    assert cli.main(["report", run]) == 0
    rows = pd.read_csv(tmp_path / "run" / "clusters.csv", index_col="id")
    assert rows["label"].to_dict() == {f"item{i}": group for i, group in enumerate(groups)}
    of_camera = rows.dropna(subset="cluster of camera")
    assert len(of_camera) == 108
    kinds, found = pd.factorize(of_camera["label"])[0], of_camera["cluster of camera"].to_numpy(int)
    assert metrics.clustering_accuracy(kinds, found) > 0.9
    looks = map(json.loads, (tmp_path / "run" / "refresh.jsonl").read_text().splitlines())
    weights = np.array(next(look["weights"] for look in looks if "weights" in look))  # camera, coin, radar
    assert weights[0, 2] > 2 * max(weights[0, 1], weights[1, 2])
    scaling = json.loads((tmp_path / "run" / "data.json").read_text())["scaling"]
    assert set(scaling) == {"camera", "coin", "radar"}
