"""Recipes state every field that changes a result; so do the functions of the library that make policies and heads."""

import dataclasses
import functools
import inspect
import sys
from pathlib import Path

import pytest

from docs import papers
from mvcl import _configs, augment, data, evaluation, losses, methods, models, training

ROOT = Path(__file__).parents[2]
PACKAGES = (augment, data, evaluation, methods, models, training)
LIBRARY = [ROOT / "mvcl" / f for f in ("augment/_policy.py", "models/_configs.py", "training/_train.py")]
# Options of objectives that a method sets, or that change no value.
FROM_METHOD = {"normalize", "mask", "axis_name", "block_size", "extra_negatives", "weights", "key", "queue"}
FROM_METHOD |= {"global_views", "max_operations"}


class Calls:
    """The calls of some files, but for those of smoke variants, that leave settings to a default."""

    def __init__(self, monkeypatch, *folders):
        self.folders, self.found, self.views = folders, {}, []
        for cls in (getattr(package, name) for package in PACKAGES for name in package.__all__):
            if isinstance(cls, type) and dataclasses.is_dataclass(cls) and "__init__" in vars(cls):
                monkeypatch.setattr(cls, "__init__", self.of_class(cls, cls.__init__))
        for name, function in losses.higher_order_functions().items():
            monkeypatch.setattr(losses, name, self.of_function(function))

    def place(self):
        """File, line and function that made the call, None where another does."""
        frame = sys._getframe(2)
        file, function = Path(frame.f_code.co_filename), frame.f_code.co_name
        watched = any(folder == file or folder in file.parents for folder in self.folders)
        small = function.startswith(("smoke", "_small"))
        return f"{file.name}:{frame.f_lineno}" if watched and not small else None

    def add(self, place, name, left):
        if left:
            self.found[f"{place} {name}"] = f"{place} {name} leaves {', '.join(left)}"

    def of_class(self, cls, made):
        names = [field.name for field in dataclasses.fields(cls)]

        def init(config, *args, **given):
            made(config, *args, **given)
            if type(config) is cls and (place := self.place()):
                written = {*given, *names[: len(args)]}
                # fields may be left out whose mechanism is absent
                tables = [papers.OFF.get(of.__name__, {}) for of in cls.__mro__]
                off = {f for table in tables for f in table if table[f] == getattr(config, f, None)}
                left = [f for f in papers.needed(config) if f not in written | off]
                if isinstance(config, training.Views):  # its data say whether a policy is needed
                    self.views.append((config, place, left))
                else:
                    self.add(place, cls.__name__, left)

        return init

    def of_function(self, function):
        @functools.wraps(function)
        def call(*args, **given):
            if place := self.place():
                written = inspect.signature(function).bind(*args, **given).arguments
                self.add(place, function.__name__, self.options(function, written))
            return function(*args, **given)

        return call

    @staticmethod
    def options(function, written):
        """What a call leaves to a default; an option that is None by default is a mechanism that is absent."""
        options = {name: p.default for name, p in inspect.signature(function).parameters.items()}
        absent = (inspect.Parameter.empty, None)
        left = [name for name, default in options.items() if name not in written and default not in absent]
        return [name for name in left if name not in FROM_METHOD]

    def objective(self, place, objective):
        function, bound = losses.unwrap(objective)
        if losses.higher_order(function) is None:
            self.add(place, function.__name__, self.options(function, bound))
        for option in bound.values():
            if losses.takes(option) != losses.Takes() if callable(option) else False:
                self.objective(place, option)

    def config(self, config, place):
        """Adds what a config leaves to defaults."""
        given = type(config.data).__name__ in papers.GIVEN
        for views, where, left in self.views:
            if views is config.views:
                self.add(where, "Views", [f for f in left if not (given and f in ("k", "policy"))])
        if "objective" in papers.needed(config):
            self.objective(place, config.objective)


FILES = [file for name in papers.names() for file in papers.configs(name)]


def name(file):
    return f"{file.parent.name}/{file.stem}"


@pytest.mark.parametrize("file", FILES, ids=name)
def test_a_recipe_states_every_setting(file, monkeypatch):
    """Also those that are at their default: a change of a default is then no change of the recipe."""
    calls = Calls(monkeypatch, ROOT / "configs", *LIBRARY)
    for variant in _configs.variants(file):
        if not variant.startswith("smoke"):
            calls.config(training.load(f"{name(file)}:{variant}"), f"{file.name}, {variant}:")
    assert not list(calls.found.values())


def test_policies_heads_and_fine_tuning_of_the_library_state_every_setting(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(training.to_json(training.load("shidani/imagenet1k")))
    calls = Calls(monkeypatch, *LIBRARY)
    heads = [getattr(models, f"{name}_head") for name in ("byol", "koromilas", "moco_v2", "moco_v3", "piran")]
    for make in (*augment.POLICIES.values(), *heads):
        make()
    calls.config(training.finetune_config(tmp_path), "fine-tuning:")
    assert not list(calls.found.values())


CONFIG = """
from mvcl import losses, models, training
def get_config():
    train = training.Train(epochs=1, batch_size=8)
    head = models.MLPHead(layers=1, out=2, output_norm="none")
    return training.Config(train=train, head=head, objective=losses.mv_dhel)
"""


def test_a_field_that_a_recipe_leaves_to_its_default_is_seen(tmp_path, monkeypatch):
    file = tmp_path / "x.py"
    file.write_text(CONFIG)
    calls = Calls(monkeypatch, tmp_path)
    calls.config(training.load(file), "x.py:")
    assert list(calls.found.values()) == [
        "x.py:4 Train leaves precision",
        "x.py:5 MLPHead leaves init",
        "x.py:6 Config leaves data, views, encoder, method, optimizer, evaluation",
        "x.py: mv_dhel leaves temperature, energy_weight",
    ]
