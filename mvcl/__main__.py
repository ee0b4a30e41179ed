"""`mvcl` and `python -m mvcl`."""

import gc
import sys

from mvcl import _extras


def main() -> int:
    """Run one command; if its packages are not installed, print how to install them."""
    gc.disable()  # while packages are imported, which leaves nothing to collect; see cli._collect_garbage
    try:
        from mvcl import cli
    except _extras.MissingExtra as error:
        print(f"mvcl: {error}", file=sys.stderr)
        return 2
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
