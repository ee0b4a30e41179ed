"""`mvcl` and `python -m mvcl`."""

import sys

from mvcl import _extras


def main() -> int:
    """Run one command; if its packages are not installed, print how to install them."""
    try:
        from mvcl import cli
    except _extras.MissingExtra as error:
        print(f"mvcl: {error}", file=sys.stderr)
        return 2
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
