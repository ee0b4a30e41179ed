import dataclasses
import json

import pytest

from mvcl import augment, methods, models, training
from mvcl.training import Config, Train, Views


@pytest.mark.parametrize("table", sorted(training.CHOICES))
def test_every_choice_survives_json(table):
    base = Config()
    if table == "method.predictor":
        base = training.choose(base, "method", "student_teacher")
    if table == "objective.pair":
        base = training.choose(base, "objective", "all_pairs")
    for name in training.CHOICES[table]:
        config = training.choose(base, table, name)
        assert training.from_json(training.to_json(config)) == config


def test_json_keeps_tuples_of_policies():
    policies = (augment.byol_global1(32), augment.byol_global2(32))
    config = Config(views=Views(k=2, policies=policies))
    assert training.from_json(training.to_json(config)).policies == policies


def test_another_choice_brings_its_own_fields():
    config = training.choose(Config(), "objective", "nt-xent")
    assert config.objective == methods.OBJECTIVES["nt_xent"]()
    assert {f.name for f in dataclasses.fields(config.objective)} >= {"temperature", "scope"}
    config = training.choose(
        training.choose(config, "objective", "one_vs_rest"), "objective.pair", "info_nce"
    )
    assert config.objective.pair.temperature == 0.1


def test_options_of_an_objective_are_those_of_the_loss():
    options = methods.OBJECTIVES["mv_infonce"](temperature=0.2, negatives="all").options()
    assert options["temperature"] == 0.2
    assert options["negatives"] == "all"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"views": Views(k=1)}, r"views\.k must be at least 2.*got 1"),
        ({"views": Views(k=3, policies=(augment.simclr(),))}, r"must have views\.k = 3 entries"),
        ({"views": Views(k=2, policies=(augment.simclr(), augment.simclr(image_size=32)))}, "one image_size"),
        ({"views": Views(k=3, strategy="fixed"), "train": Train(batch_size=32)}, "multiple of views.k = 3"),
        ({"train": Train(steps=0)}, r"train\.steps must be at least 1"),
        ({"train": Train(epochs=0)}, r"train\.epochs must be positive"),
        ({"train": Train(ema=1.0)}, r"train\.ema"),
        ({"train": Train(batch_size=1)}, "at least 2 examples"),
        (
            {"objective": methods.OBJECTIVES["nt_xent"](), "views": Views(k=4)},
            "objective:all_pairs objective.pair:nt_xent",
        ),
        ({"train": Train(microbatch=8)}, "encoder.norm group"),
    ],
)
def test_configs_that_cannot_work(change, message):
    with pytest.raises(ValueError, match=message):
        training.check(dataclasses.replace(Config(), **change))


def test_microbatches_go_with_an_encoder_without_batch_statistics():
    training.check(Config(encoder=models.ResNet(norm="group"), train=Train(microbatch=8)))


def test_strategies_of_shidani():
    assert Config(views=Views(k=8), train=Train(batch_size=4096)).examples == 4096
    assert Config(views=Views(k=8, strategy="fixed"), train=Train(batch_size=4096)).examples == 1024


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"_type": "Config", "data": {"_type": "Popen"}}', "unknown class 'Popen'"),
        ('{"_type": "Config", "nonsense": 1}', "does not fit Config"),
        ('{"_type": "Train"}', "not a Config"),
    ],
)
def test_saved_configs_from_strangers(text, message):
    with pytest.raises(ValueError, match=message):
        training.from_json(text)


def test_python_configs(tmp_path):
    file = tmp_path / "c.py"
    file.write_text("def get_config(): return 3")
    with pytest.raises(ValueError, match=r"must return a mvcl\.training\.Config, got int"):
        training.load(file)
    file.write_text("x = (")
    with pytest.raises(ValueError, match="is not Python"):
        training.load(file)
    with pytest.raises(ValueError, match="no config at"):
        training.load(tmp_path / "none.py")
    file = tmp_path / "config.json"
    file.write_text(training.to_json(Config()))
    assert training.load(file) == training.load(tmp_path) == Config()
    assert json.loads(file.read_text())["_type"] == "Config"
