"""Every variant of every config: headers, settings that fit together, true-size programs, two steps at a small size."""

import ast
import dataclasses
import re
from typing import Annotated

import jax
import pytest
import tyro
from parametrize import some

from mvcl import _configs, data, training
from mvcl.training import Mesh, _cost, _program

FILES = _configs.names()
CONFIGS = [
    name if variant == "get_config" else f"{name}:{variant}"
    for name, file in FILES.items()
    for variant in _configs.variants(file)
]
SMOKE = [source for source in CONFIGS if ":smoke" in source]
# One's own data have any size.
TRUE_SIZE = [s for s in CONFIGS if s not in (*SMOKE, "images", "tables", "xu/sem:tables")]


def parsed(config: Annotated[training.Config, tyro.conf.arg(name="")]) -> training.Config:
    """The config of a command without other options."""
    return config


def docstrings(file):
    """Of a file, by an empty name, and of its functions."""
    tree = ast.parse(file.read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {"": ast.get_docstring(tree) or "", **{f.name: ast.get_docstring(f) or "" for f in functions}}


def test_no_header_offers_microbatches_for_batch_norm():
    """Statistics of a batch are not those of its parts, so that `--train.microbatch` is refused."""
    for name, file in FILES.items():
        of_batch = {
            variant: "batch" in (getattr(part, "norm", "") for part in (config.encoder, config.head))
            for variant in _configs.variants(file)
            if not variant.startswith("smoke")
            for config in [training.load(f"{name}:{variant}")]
        }
        for variant, text in docstrings(file).items():
            if of_batch.get(variant, all(of_batch.values())):
                assert "--train.microbatch" not in text, f"{name}, {variant}"


def suited(source):
    """Config, on one device, and outline, for data of their published size where they are not here."""
    config = dataclasses.replace(training.load(source), mesh=Mesh(data=1))
    outline = data.expected(config.data) or config.data.open()["train"].outline
    return training.suited_to(config, outline), outline


@pytest.mark.parametrize("name", FILES)
def test_headers_have_command_hardware_cost_and_scores(name):
    texts, variants = docstrings(FILES[name]), set(_configs.variants(FILES[name]))
    real = [text for function, text in texts.items() if not function.startswith(("_", "smoke"))]
    assert f"mvcl train {name} --" in texts[""]
    assert {"smoke", *re.findall(rf"mvcl train {name}:(\w+)", texts[""])} <= variants
    for word in ("Hardware", "Cost", "Paper", "Ours"):
        assert any(re.search(rf"^{word}.*:", text, re.MULTILINE) for text in real), word


@pytest.mark.parametrize("name", some(FILES, fast=["jeon/dsf", "xu/sem"]))
def test_options_in_headers_are_understood(name):
    header = docstrings(FILES[name])[""]
    lines = re.findall(r"^ {4}((?:--|objective|method).*?)(?: {2,}.*)?$", header, re.MULTILINE)
    for line in lines:
        training.check(training.with_config(parsed, training.load(name), "train", line.split()))


@pytest.mark.parametrize("source", TRUE_SIZE)
def test_settings_fit_together(source):
    suited(source)


@pytest.mark.parametrize("source", some(TRUE_SIZE, fast=["digits", "xu/sem:dha"]))
def test_the_true_size_step_resolves(source):
    config, outline = suited(source)
    program = _program.build(config, outline)
    state, batch = program.abstract_state, _cost.abstract_batch(program, config, outline)
    after, values = jax.eval_shape(program.step, state, batch)
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), (state, after))
    assert shapes[0] == shapes[1]
    assert {name: value.shape for name, value in values.items()}["loss"] == ()


@pytest.mark.slow
def test_smoke_variants_train_evaluate_and_report(tmp_path, capsys):
    from benchmarks import smoke

    for number, source in enumerate(smoke.smoke_variants()):
        text = smoke.smoke(source, tmp_path / str(number))
        assert re.match(r"loss +-?[\d.]+ to +-?[\d.]+  \S", text)
