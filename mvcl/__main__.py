"""`mvcl` and `python -m mvcl`."""

import gc
import sys


def main() -> int:
    """Run one command."""
    gc.disable()  # while packages are imported, which leaves nothing to collect; see cli._collect_garbage
    from mvcl import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
