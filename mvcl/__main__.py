"""`mvcl` and `python -m mvcl`."""

import os
import sys

from mvcl.cli import main


def command() -> None:
    """Run the command and end the process with its exit code, at once after an error.

    Python's normal exit would wait for a blocked reader or for other processes, or raise again for each open file on a
    full disk.
    """
    code = main()
    if code in (1, 2):
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    command()
