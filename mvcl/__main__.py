"""`mvcl` and `python -m mvcl`."""

import os
import sys
import threading

from mvcl.cli import main


def command() -> None:
    """Run the command and end the process with its exit code, at once after an error.

    Python's normal exit would wait for a blocked reader or for other processes.
    """
    if "--debug" not in sys.argv:
        # TensorBoard's writer at a full disk, for one. The run ends where it cannot go on, with its own message.
        threading.excepthook = lambda of: print(f"mvcl: a thread ended: {of.exc_value}", file=sys.stderr)
    code = main()
    if code in (1, 2):
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    command()
