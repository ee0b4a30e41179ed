"""The `mvcl` command: find the command, call it, and print its error in one line."""

import errno
import gc
import inspect
import os
import sys
import traceback
from collections.abc import Sequence

from mvcl import _configs

COMMANDS = (
    *("train", "evaluate", "finetune", "embed", "geometry"),
    *("report", "study", "export", "data", "configs"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 for success, 2 for invalid input, 1 for a failure at run time."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # of jax's libraries; errors still raise exceptions
    if argv is None:
        gc.disable()  # while packages are imported, which leaves nothing to collect; see _commands.start
    try:
        return _run(*(a for a in arguments if a != "--debug"))
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
        code = 2 if isinstance(error, ValueError) else 1
        if (number := getattr(error, "signal", None)) is not None:  # training.Interrupted
            code = 128 + number
        if argv is None and _needs_hard_exit(error):  # os._exit only as a command, not for a Python caller
            sys.stdout.flush()
            os._exit(code)
        return code


def _run(name: str = "--help", *rest: str) -> int:
    if name in ("-h", "--help"):
        print(overview(), end="")
        return 0
    if name == "--version":
        from mvcl import __version__

        print(__version__)
        return 0
    if name not in COMMANDS:
        near = _configs.hint(name, COMMANDS)
        raise ValueError(f"unknown command {name!r}; {near}Commands: {', '.join(COMMANDS)}")
    from mvcl import _commands

    command = getattr(_commands, name)
    if "arguments" not in inspect.signature(command).parameters:
        import tyro

        config = (tyro.conf.PositionalRequiredArgs,)
        tyro.cli(command, args=rest, prog=f"mvcl {name}", config=config)
        return 0
    if rest[:1] in (("-h",), ("--help",)):
        print(inspect.getdoc(command))
        return 0
    return command(list(rest)) or 0


def overview() -> str:
    """What `mvcl --help` prints."""
    from mvcl import _commands

    documented = ((name, inspect.getdoc(getattr(_commands, name)) or "") for name in COMMANDS)
    commands = [f"  mvcl {name:9} {text.partition(chr(10))[0]}\n" for name, text in documented]
    return (
        "usage: mvcl COMMAND ...\n\nMulti-view contrastive representation learning.\n\n"
        f"{''.join(commands)}\n"
        "Begin with `mvcl train digits`. Every command takes --help, and --debug for a full traceback of an error.\n"
    )


def _needs_hard_exit(error: Exception) -> bool:
    """Whether to skip Python's normal exit: it would wait for a blocked reader or for other processes, or raise again
    for each open file on a full disk."""
    if "jax" not in sys.modules or isinstance(error, ImportError):
        return False
    import jax

    from mvcl import data, training

    stopped_together = getattr(error, "signal", None) is not None
    several = jax.distributed.is_initialized() and not stopped_together
    return several or isinstance(error, (data.StalledReader, training.UnwrittenCheckpoint, OSError))


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{text}: free disk space, then repeat the command to resume from the newest checkpoint"
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES):
        return f"{text}: choose a writable --workdir"
    if isinstance(error, (ValueError, RuntimeError, OSError)):
        return text
    return f"{type(error).__name__}: {text} (a bug in mvcl; --debug prints the traceback)"
