"""Every variant of every config: headers, settings that fit together, true-size programs, two steps at a small size."""

import ast
import dataclasses
import re
from typing import Annotated

import jax
import jax.numpy as jnp
import pytest
import tyro
from flax import nnx
from parametrize import some

from mvcl import _configs, data, models, training
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


def load(source):
    """A config on one device."""
    return dataclasses.replace(training.load(source), mesh=Mesh(data=1))


def test_no_header_offers_microbatches_for_batch_norm():
    """Statistics of a batch are not those of its parts, so that `--train.microbatch` is refused."""
    for name, file in FILES.items():
        of_batch = {
            variant: "batch" in (getattr(part, "norm", "") for part in (config.encoder, config.head))
            for variant in _configs.variants(file)
            if not variant.startswith("smoke")
            for config in [training.load(f"{name}:{variant}")]
        }
        tree = ast.parse(file.read_text())
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        words = {"": ast.get_docstring(tree), **{f.name: ast.get_docstring(f) for f in functions}}
        for variant, text in words.items():
            if of_batch.get(variant, all(of_batch.values())):
                assert "--train.microbatch" not in (text or ""), f"{name}, {variant}"


def programs(config):
    """Config, outline and programs, for data of their published size where they are not here."""
    outline = data.expected(config.data)
    if outline is None:
        outline = config.data.open()["train"].outline
    config = training.suited_to(config, outline)
    return config, outline, _program.build(config, outline)


@pytest.mark.parametrize("name", FILES)
def test_headers_have_command_hardware_cost_and_scores(name):
    tree = ast.parse(FILES[name].read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    header = ast.get_docstring(tree) or ""
    real = [ast.get_docstring(f) or "" for f in functions if not f.name.startswith(("_", "smoke"))]
    assert f"mvcl train {name} --" in header
    assert "smoke" in _configs.variants(FILES[name])
    assert set(re.findall(rf"mvcl train {name}:(\w+)", header)) <= set(_configs.variants(FILES[name]))
    for word in ("Hardware", "Cost", "Paper", "Ours"):
        assert any(re.search(rf"^{word}.*:", text, re.MULTILINE) for text in (header, *real)), word


@pytest.mark.parametrize("name", some(FILES, fast=["jeon/dsf", "xu/sem"]))
def test_options_in_headers_are_understood(name):
    header = ast.get_docstring(ast.parse(FILES[name].read_text())) or ""
    lines = re.findall(r"^ {4}((?:--|objective|method).*?)(?: {2,}.*)?$", header, re.MULTILINE)
    for line in lines:
        training.check(training.with_config(parsed, training.load(name), "train", line.split()))


@pytest.mark.parametrize("source", TRUE_SIZE)
def test_settings_fit_together(source):
    config = load(source)
    outline = data.expected(config.data) or config.data.open()["train"].outline
    training.suited_to(config, outline)


@pytest.mark.parametrize("source", some(TRUE_SIZE, fast=["digits", "xu/sem:dha"]))
def test_the_true_size_step_resolves(source):
    config, outline, program = programs(load(source))
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


def small_vit(frozen):
    config = models.ViT(patch=4, width=16, depth=1, heads=2, frozen_patches=frozen)
    return config.build((8, 8, 3), dtype=jnp.float32, rngs=nnx.Rngs(jax.random.key(0)))


def test_a_frozen_projection_is_no_parameter():
    free, frozen = (nnx.eval_shape(lambda frozen=frozen: small_vit(frozen)) for frozen in (False, True))
    assert models.parameter_count(free) - models.parameter_count(frozen) == 4 * 4 * 3 * 16 + 16
