"""Optional dependencies: a failed import raises an error with the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtra(ImportError, ValueError):
    """A module of an extra is not installed. Also a `ValueError`, so that the command exits with code 2."""


@contextmanager
def needed(extra: str, by: str) -> Iterator[None]:
    """Context for imports that need an extra of pyproject.toml; `by` is what needs them.

    Raises:
      MissingExtra: a module is not installed; the message names it and the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise MissingExtra(f"{by} needs {package}: pip install 'mvcl[{extra}]'", name=package) from error
