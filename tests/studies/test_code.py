"""What a task uses is found from its imports, without the code of other objectives."""

from functools import partial
from pathlib import Path

import pytest

from mvcl import losses, studies
from mvcl.studies import _code
from mvcl.training import Config


def used(objective) -> set[str]:
    return set(_code.code_of(studies.Training(config=Config(objective=objective))))


def test_an_objective_uses_its_own_file():
    dhel, pairs = used(partial(losses.mv_dhel, temperature=0.1)), used(losses.all_pairs(losses.siglip))
    assert "mvcl/losses/_mv_dhel.py" in dhel
    assert "mvcl/losses/_mv_dhel.py" not in pairs
    assert {"mvcl/losses/_siglip.py", "mvcl/losses/_higher_order.py"} <= pairs
    assert "mvcl/losses/_siglip.py" not in dhel
    for name in (
        "mvcl/training/_program.py",
        "mvcl/augment/_ops.py",
        "mvcl/models/_convolutional.py",
        "mvcl/_numerics.py",
    ):
        assert name in dhel & pairs


def test_reports_are_not_used():
    assert not any(
        name.startswith(("mvcl/report", "mvcl/cli")) or "_progress" in name for name in used(losses.m3g)
    )


def test_claims_are_not_used():
    task = studies.Training(config=Config(), measure=studies.results_and_embeddings)
    names = set(_code.code_of(task))
    assert "mvcl/studies/_koromilas.py" in names
    assert not names & {"mvcl/studies/_verdicts.py", "mvcl/studies/_study.py", "mvcl/studies/_open.py"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `mvcl` of four files."""
    root = tmp_path / "mvcl"
    (root / "losses").mkdir(parents=True)
    (root / "losses" / "__init__.py").write_text(
        "from mvcl.losses._a import a\nfrom mvcl.losses._b import b as c\n"
    )
    (root / "losses" / "_a.py").write_text('"""Text."""\ndef a():\n    """More."""\n    return 1  # why\n')
    (root / "losses" / "_b.py").write_text("from mvcl import _n\ndef b():\n    return _n.x\n")
    (root / "_n.py").write_text("x = 1\n")
    monkeypatch.setattr(_code, "_PACKAGE", root)
    caches = (_code.digest, _code.used_by, _code._exports)
    for cached in caches:
        cached.cache_clear()
    yield root
    for cached in caches:
        cached.cache_clear()


def test_a_package_is_used_by_attribute(package: Path):
    user = package / "user.py"
    user.write_text("from mvcl import losses\nlosses.c()\n")
    assert _code.used_by(user) == (package / "losses" / "_b.py",)
    assert _code.used_by(package / "losses" / "_b.py") == (package / "_n.py",)


def test_comments_and_docstrings_do_not_count(package: Path):
    file = package / "losses" / "_a.py"
    before = _code.digest(file)
    file.write_text('"""Other text."""\n\n\ndef a():\n    return 1\n')
    _code.digest.cache_clear()
    assert _code.digest(file) == before
    file.write_text("def a():\n    return 2\n")
    _code.digest.cache_clear()
    assert _code.digest(file) != before
