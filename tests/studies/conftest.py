"""What several studies share is imported as they import it."""

import sys

from mvcl import _configs

sys.path.append(str(_configs.STUDIES))
