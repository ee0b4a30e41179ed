import dataclasses
import json
import linecache
import re
import sys
import types

import jax
import numpy as np
import pytest

from mvcl import augment, data, losses, models, training
from mvcl.studies import changed
from mvcl.training import Config, Train, Views, _serialise

# What is chosen before a choice is there.
BEFORE = {
    "method.predictor": ["method:student_teacher"],
    "method.augmentation": ["method:fused"],
    "method.fusion": ["method:multi_encoder"],
    "evaluation.linear.policy": ["evaluation.linear:sgd"],
    "objective.pair": ["objective:all_pairs"],
    "objective.cost": ["objective:m3g"],
    "objective.pair.cost": ["objective:all_pairs", "objective.pair:m3g_pair"],
}


@pytest.mark.parametrize("table", sorted(training.CHOICES))
def test_every_choice_round_trips_through_json(table):
    base, _ = training.choose_all(Config(), BEFORE.get(table, []))
    for name in training.CHOICES[table]:
        config = training.choose(base, table, name)
        text = training.to_json(config)
        assert training.to_json(training.from_json(text)) == text


@pytest.mark.parametrize(
    ("field", "value", "requirement"),
    [
        ("views.k", 1, "at least 2, got 1"),
        ("views.reference_views", 0, "at least 1"),
        ("views.global_views", 2, "in [1, 2), got 2"),
        ("views.policies", (augment.simclr(),), "empty or have at least views.k = 2 entries, got 1"),
        ("train.steps", 0, "at least 1"),
        ("train.epochs", 0.0, "more than 0, got 0.0"),
        ("train.ema", 1.0, r"in [0, 1)"),
        ("train.log_every", 0, "at least 1"),
        ("train.corrupt_limit", -1, "at least 0"),
        ("train.peak_tflops", 0.0, "more than 0"),
        ("train.evaluate_every", -1.0, "at least 0"),
        ("checkpoint.every_steps", 0, "at least 1"),
        ("mesh.slices", 0, "at least 1"),
        ("mesh.data", -2, "at least 1"),
    ],
)
def test_raises_on_an_invalid_field(field, value, requirement):
    with pytest.raises(ValueError, match=re.escape(f"{field} must be {requirement}")):
        training.check(changed(Config(), {field: value}))


LEAST = {
    **{"views.reference_views": 1, "views.global_views": 1, "views.strategy": "fixed"},
    **{"train.steps": 1, "train.ema": 0.0, "train.log_every": 1, "train.threads": 1, "train.group": 2},
    **{"train.corrupt_limit": 0, "train.stall_seconds": 0.0, "train.evaluate_every": 0.0},
    **{"train.geometry_every": 0.0, "train.batch_size": 4, "checkpoint.every_steps": 1, "checkpoint.keep": 1},
    **{"mesh.slices": 1, "mesh.fsdp": 1, "mesh.data": 1},
}


def test_the_least_value_of_each_field_is_valid():
    config = changed(Config(), LEAST)
    assert training.check(config) is config


def test_raises_on_fields_that_do_not_fit():
    one = Config(views=Views(k=9, strategy="fixed"), train=Train(batch_size=8))
    with pytest.raises(ValueError, match=r"at least 2 examples, got 1 \(8 x 2 views / 9, rounded down\)"):
        training.check(one)
    with pytest.raises(ValueError, match=r"objective:all_pairs objective\.pair:nt_xent"):
        training.check(Config(objective=losses.nt_xent, views=Views(k=4)))


def test_strategies_of_shidani():
    growing = Config(views=Views(k=8), train=Train(batch_size=4096))
    assert growing.examples == 4096
    for k, n in ((2, 4096), (3, 2730), (4, 2048), (6, 1365), (8, 1024), (12, 682), (16, 512)):
        assert changed(growing, {"views.k": k, "views.strategy": "fixed"}).examples == n


@pytest.mark.parametrize(
    ("side", "channels", "size", "blur", "encoder"),
    [(22, 1, 22, 0.0, models.ConvNet()), (600, 3, 224, 0.5, models.ResNet())],
)
def test_the_recipe_of_images_follows_them(side, channels, size, blur, encoder):
    outline = data.Outline(100, 1, data.ExampleSpec(((None, None, channels),)), side=side)
    config = training.suited_to(training.load("images"), outline)
    policy = config.views.policy
    assert (policy.image_size, policy.blur_probability, config.train.batch_size) == (size, blur, 100)
    assert config.encoder == encoder
    assert training.suited_to(config, outline) == config


def test_fixed_budget_of_koromilas():
    """The numbers of the paper, on any number of devices."""
    outline = data.Outline(50_000, 10, data.ExampleSpec(((32, 32, 3),)))

    def examples(k, batch_size, devices):
        views = Views(k=k, strategy="fixed", reference_views=1)
        config = Config(views=views, train=Train(batch_size=batch_size), mesh=training.Mesh(data=devices))
        return training.suited_to(config, outline).examples

    for devices in (1, 8, 256):
        assert [examples(k, 256, devices) for k in range(2, 9)] == [128, 85, 64, 51, 42, 36, 32]


SAVED = '{"_type": "mvcl.training.Config", '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        (SAVED + '"data": {"_type": "Popen"}}', "unknown class or function 'Popen'"),
        (SAVED + '"objective": {"_function": "os:system"}}', "unknown .*os:system"),
        (SAVED + '"nonsense": 1}', r"does not fit mvcl\.training\.Config"),
        ('{"_type": "mvcl.training.Train"}', "not a Config"),
    ],
)
def test_raises_on_invalid_saved_configs(text, message):
    with pytest.raises(ValueError, match=message):
        training.from_json(text)


HEADER = """
import dataclasses
from functools import partial
from mvcl import augment, data, losses, models
from mvcl.training import Config, Views
from mvcl.transport import SumOverPairs
"""


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("3", r"must return a mvcl\.training\.Config, got int"),
        ("(", "has a syntax error"),
        (
            "Config(objective=partial(losses.mv_dhel, temprature=1.0))",
            "mv_dhel has no option 'temprature'; did you mean 'temperature'",
        ),
        ("Config(encoder=models.ResNet(deph=18))", "ResNet has no option 'deph'; did you mean 'depth'"),
        ("Config(veiws=Views())", "Config has no option 'veiws'; did you mean 'views'"),
        ("Config(objective=lambda z: 0.0)", "top level of a module, got .*lambda"),
        ("Config(objective=partial(losses.mv_dhel, 0.5))", r"must be bound by keyword, got \(0\.5,\)"),
    ],
)
def test_raises_on_invalid_config_files(tmp_path, returned, message):
    file = tmp_path / "c.py"
    file.write_text(f"{HEADER}def get_config(): return {returned}")
    with pytest.raises(ValueError, match=message):
        training.load(file)


def test_loads_files_variants_and_folders(tmp_path):
    file = tmp_path / "c.py"
    file.write_text(HEADER + "def four(): return Config(views=Views(k=4))")
    with pytest.raises(ValueError, match=r"has no function get_config\(\).*It has four"):
        training.load(file)
    file.write_text(file.read_text() + "\ndef get_config(): return Config()")
    assert training.load(f"{file}:four").views.k == 4
    saved = tmp_path / "config.json"
    saved.write_text(training.to_json(Config()))
    sources = (saved, tmp_path, file)
    assert {training.to_json(training.load(source)) for source in sources} == {training.to_json(Config())}


OWN = """
SCALE = 2.0

def scaled(z):
    return SCALE * z

def my_loss(z, temperature: float = 0.5):
    return losses.mv_dhel(scaled(z), temperature)

@dataclasses.dataclass(frozen=True)
class MyEncoder:
    width: int = 3
    def build(self, input_shape, *, dtype, rngs):
        return models.MLP(widths=(self.width,)).build(input_shape, dtype=dtype, rngs=rngs)

def my_cost(stack):
    return 1 - (stack.mean(0) ** 2).sum()

def get_config():
    return Config(objective=partial(my_loss, temperature=0.25), encoder=MyEncoder(width=5))

def transport():
    return Config(objective=partial(losses.m3g, cost=my_cost))

def my_pair(x, y, softening: float = 0.1):
    return ((x - y) ** 2).sum() / (1 + softening)

def pairs():
    cost = SumOverPairs(partial(my_pair, softening=0.3), [[0, 2.0], [2, 0]])
    return Config(objective=partial(losses.m3g, cost=cost))
"""


def test_saves_user_functions_by_name_and_digest(tmp_path, monkeypatch):
    file = tmp_path / "own.py"
    file.write_text(HEADER + OWN)
    for source in (file, f"{file}:transport", f"{file}:pairs"):
        config = training.load(source)
        text = training.to_json(config)
        with monkeypatch.context() as another_process:
            another_process.setattr(_serialise, "_own", {})
            message = r"own\.py:\w+, which is not part of mvcl.* --config own\.py"
            with pytest.raises(ValueError, match=message):
                training.from_json(text)
        assert training.to_json(training.from_json(text)) == text
    saved = json.loads(training.to_json(training.load(file)))
    assert saved["objective"]["_function"] == "own.py:my_loss"
    assert saved["objective"]["temperature"] == 0.25
    assert saved["encoder"].items() >= {"_type": "own.py:MyEncoder", "width": 5}.items()
    assert "_digest" in saved["encoder"]
    transport = training.load(f"{file}:transport").objective
    assert jax.eval_shape(transport, np.ones((2, 3, 4), np.float32)).shape == ()
    config = training.load(f"{file}:pairs")
    saved = json.loads(training.to_json(config))["objective"]["cost"]
    assert saved["_type"] == "mvcl.transport.SumOverPairs"
    assert saved["pair"].items() >= {"_function": "own.py:my_pair", "softening": 0.3}.items()
    assert saved["weights"] == [[0, 2], [2, 0]]
    again = training.from_json(training.to_json(config)).objective.keywords["cost"]
    assert again.weights == ((0, 2), (2, 0))
    assert again(np.eye(2, dtype=np.float32)) == 2 * 2 / np.float32(1.3)


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ("scaled(z), temperature)", "scaled(z), 2 * temperature)", True),
        ("return SCALE * z", "return SCALE + z", True),
        ("SCALE = 2.0", "SCALE = 3.0", True),
        ("width: int = 3", "width: int = 4", False),
        ("def transport():", "def other_transport():", False),
    ],
)
def test_digest_covers_the_code_that_a_function_uses(tmp_path, before, after, changes):
    digests = []
    for text in (OWN, OWN.replace(before, after)):
        file = tmp_path / "own.py"
        file.write_text(HEADER + text)
        digests.append(json.loads(training.to_json(training.load(file)))["objective"]["_digest"])
    assert (digests[0] != digests[1]) == changes


def _defined_in_a_notebook(monkeypatch, cell, lines):
    """The class `Own` of a cell: its module has no file, and its lines are known by the cell's name alone."""
    notebook = types.ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    monkeypatch.setitem(linecache.cache, cell, (len(lines), None, lines.splitlines(keepends=True), cell))
    exec(compile(lines, cell, "exec"), vars(notebook))
    return notebook.Own


IN_A_CELL = """
from dataclasses import dataclass
from mvcl import data

@dataclass(frozen=True)
class Own:
    size: int = 3
    def open(self):
        return {}
"""


def test_digest_of_a_class_of_a_notebook_is_that_of_its_methods(monkeypatch):
    found = []
    changed = IN_A_CELL.replace("{}", "{1: 2}")
    for cell, lines in (("<cell 1>", IN_A_CELL), ("<cell 2>", IN_A_CELL), ("<cell 3>", changed)):
        own = _defined_in_a_notebook(monkeypatch, cell, lines)
        saved = json.loads(training.to_json(dataclasses.replace(Config(), data=own())))["data"]
        assert saved["size"] == 3
        found.append(saved["_digest"])
    assert found[0] == found[1] != found[2]


def test_a_class_without_source_is_refused(monkeypatch, tmp_path):
    own = _defined_in_a_notebook(monkeypatch, "<cell>", IN_A_CELL)
    linecache.cache.clear()
    with pytest.raises(ValueError, match=r"functions and classes with source code.* got Own of notebook"):
        training.to_json(dataclasses.replace(Config(), data=own()))
