"""Optional dependencies: an import that fails names the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtra(ImportError, ValueError):
    """A module of an extra that is not installed: also a `ValueError`, since the call cannot work as it is."""


@contextmanager
def needed(extra: str, by: str) -> Iterator[None]:
    """Wraps the imports of a package or function that an extra of pyproject.toml brings.

    Args:
      extra: name of the extra.
      by: what needs the modules, as the error is to call it.

    Raises:
      MissingExtra: a module is not installed; the message names it and the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{by} needs {error.name}: pip install 'mvcl[{extra}]'", name=error.name
        ) from error
