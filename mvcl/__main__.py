"""`mvcl` and `python -m mvcl`."""

import sys

from mvcl.cli import main

if __name__ == "__main__":
    sys.exit(main())
