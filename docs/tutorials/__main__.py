"""Executes tutorials from scratch and stores their outputs.

    python -m docs.tutorials                       # all, in the order of their names
    python -m docs.tutorials compose_losses ...    # some

A notebook runs in an empty temporary folder, on CPU, with the `mvcl` of this environment. Pictures that it writes, and
that lie here already, are stored too. What differs between two executions is left out: execution times and versions.
"""

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
NOTEBOOKS = tuple(sorted(FOLDER.glob("*.ipynb")))
# Seconds for one cell.
_TIMEOUT = 900


def execute(path: Path) -> tuple[nbformat.NotebookNode, dict[str, bytes]]:
    """Execute a notebook in an empty folder.

    Returns:
      The notebook with its outputs, and the files that it wrote into its folder: name -> content.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell raised an exception.
    """
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=_TIMEOUT,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=_environment())
        written = {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.is_file()}
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }
    return notebook, written


def _environment() -> dict[str, str]:
    """Variables of the kernel: `mvcl` and the package of this environment, one CPU device."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MPLBACKEND", "XLA_FLAGS")}
    paths = {
        "PATH": [sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)],
        "PYTHONPATH": [str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")],
    }
    return (
        kept
        | {name: os.pathsep.join(filter(None, value)) for name, value in paths.items()}
        | {"JAX_PLATFORMS": "cpu"}
    )


def main(names: Sequence[str]) -> int:
    """Execute the named notebooks, or all, and store their outputs; returns the exit code."""
    known = {path.stem: path for path in NOTEBOOKS}
    for name in names:
        if name not in known:
            raise ValueError(f"there is no tutorial {name!r}; there are {', '.join(known)}")
    for name in names or known:
        notebook, written = execute(known[name])
        nbformat.write(notebook, known[name])
        for file, content in written.items():
            if (FOLDER / file).is_file():
                (FOLDER / file).write_bytes(content)
        print(f"{known[name].name}: {known[name].stat().st_size / 2**10:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
