"""The `mvcl` command: find the command, call it, and print its error in one line."""

import ctypes
import errno
import gc
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

import mvcl
from mvcl import _configs

_OF_RUN = ("evaluate", "embed", "neighbours", "geometry", "decompose", "export")
# Name -> module.
COMMANDS = {
    **{"train": "mvcl._commands", **dict.fromkeys(_OF_RUN, "mvcl._of_run")},
    **dict.fromkeys(("finetune", "report", "compare", "study", "data", "configs"), "mvcl._commands"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 for success, 2 for invalid input, 1 for a failure at run time."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # of jax's libraries; errors still raise exceptions
    if argv is None:
        gc.set_threshold(50_000, 20, 100)  # imports and traced programs make many objects, and keep them
        keep_freed_memory()
    try:
        return _run(*(a for a in arguments if a != "--debug")) or 0
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("\nmvcl: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        print(f"mvcl: {_one_line(error)}", file=sys.stderr)
        if hasattr(error, "signal"):  # training.Interrupted, of all processes together
            return int(128 + error.signal)
        return 2 if isinstance(error, ValueError) else 1


def keep_freed_memory() -> None:
    """Let glibc keep what is freed for the next training step, which else pays for each page of fresh memory.

    Call it before jax starts its threads. An accelerator, or a setting of malloc in the environment, leaves all as it
    is.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ) or os.name != "posix":
        return
    accelerators = map(importlib.util.find_spec, ("jax_plugins", "libtpu"))
    if os.environ.get("JAX_PLATFORMS") != "cpu" and any(accelerators):
        return
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        one_arena, without_mmap, untrimmed = (-8, 1), (-4, 0), (-1, 2**31 - 1)
        for option in (one_arena, without_mmap, untrimmed):
            set_option(*option)


def _run(name: str = "--help", *rest: str) -> int | None:
    if name in ("-h", "--help"):
        return print(overview(), end="")
    if name == "--version":
        return print(mvcl.__version__)
    if name not in COMMANDS:
        near = _configs.hint(name, [*COMMANDS])
        raise ValueError(f"unknown command {name!r}; {near}Commands: {', '.join(COMMANDS)}")
    command = getattr(importlib.import_module(COMMANDS[name]), name)
    if "arguments" in inspect.signature(command).parameters:
        return print(inspect.getdoc(command)) if rest[:1] in (("-h",), ("--help",)) else command(list(rest))
    import tyro

    tyro.cli(command, args=rest, prog=f"mvcl {name}", config=(tyro.conf.PositionalRequiredArgs,))
    return None


def overview() -> str:
    """What `mvcl --help` prints."""
    functions = {name: getattr(importlib.import_module(module), name) for name, module in COMMANDS.items()}
    commands = [f"  mvcl {n:10} {(inspect.getdoc(f) or '').splitlines()[0]}\n" for n, f in functions.items()]
    return (
        "usage: mvcl COMMAND ...\n\nMulti-view contrastive representation learning.\n\n"
        f"{''.join(commands)}\n"
        "Begin with `mvcl train digits`. Every command takes --help, and --debug for a full traceback of an error.\n"
    )


def _one_line(error: Exception) -> str:
    """The text of an error, with what would do, or the user's own line that is deepest in the traceback."""
    text = " ".join(str(error).split()) or type(error).__name__
    ours = (str(Path(mvcl.__file__).parent), str(_configs.CONFIGS), sys.base_prefix, sys.prefix, "<")
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith((*ours, *sysconfig.get_paths().values()))]
    if own and not isinstance(error, OSError):
        place = f"{own[-1].filename}, line {own[-1].lineno}"
        known = isinstance(error, (ValueError, RuntimeError))
        return f"{text} ({place})" if known else f"{place}: {type(error).__name__}: {text}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{text}: free disk space, then repeat the command to resume from the newest checkpoint"
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES):
        return f"{text}: choose a writable --workdir"
    if isinstance(error, (ValueError, RuntimeError, OSError)):
        return text
    return f"{type(error).__name__}: {text} (a bug in mvcl; --debug prints the traceback)"
