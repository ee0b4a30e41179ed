"""Packages that import their modules when a name of theirs is first used."""

import sys

import pytest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with two modules; one raises when it is imported."""
    folder = tmp_path / "lazily"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        '"""A package."""\n'
        "from typing import TYPE_CHECKING\n"
        "from mvcl import _lazy\n"
        "if TYPE_CHECKING:\n"
        "    from lazily._good import value as number, other\n"
        "    from lazily._bad import wrong\n"
        "__getattr__, __dir__, __all__ = _lazy.exports(__name__)\n"
    )
    (folder / "_good.py").write_text("value, other = 3, 4\n")
    (folder / "_bad.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import lazily

    yield lazily
    for name in [name for name in sys.modules if name.startswith("lazily")]:
        del sys.modules[name]


def test_a_module_is_imported_for_its_names_only(package):
    """The names are those under TYPE_CHECKING."""
    assert package.__all__ == ["number", "other", "wrong"]
    assert (package.number, package.other) == (3, 4)
    assert "lazily._bad" not in sys.modules
    assert vars(package)["number"] == 3  # found without __getattr__ from now on
    with pytest.raises(RuntimeError, match="imported"):
        package.wrong  # noqa: B018
