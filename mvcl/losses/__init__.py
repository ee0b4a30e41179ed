"""Objectives: pure functions of embeddings, exact to the formulas in their docstrings.

An objective of views takes `z`, a (k, n, d) array: `z[l, i]` is view l of instance i, k >= 2 and n >= 2. One of two
views takes `x` and `y`, (n, d) each; one of groups takes `queries` and `keys`, (m, n, d) and (m', n, d). Dtypes are
floating; half precision is computed in float32. The result is a scalar, float32 or wider.

Shared arguments. Objectives that have one mean the same by it:

- `normalize`: project vectors onto the unit sphere first; a zero vector stays zero and has gradient zero. Objectives
  without this argument compare vectors as they are.
- `temperature`: positive divisor of the inner products, or of what the formula divides by it, no unit.
- `mask`: boolean, (k, n), for two views (2, n), for groups (m + m', n), the queries first. False marks a view that the
  instance lacks: its vector is never read. A docstring says over what the means then run.
- `extra_negatives`: (q, d) vectors, for instance a queue, that join the negatives of every anchor. Inside `shard_map`
  every device holds all of them.
- `axis_name`: inside `shard_map`, the mesh axis over which the instances are split. Value and gradient are those of the
  whole batch.
- `block_size`: rows of similarities held at once, so that memory is linear in n; None decides. Blocks have reverse-mode
  derivatives only.

Errors. `ValueError` for a shape, dtype or value that an argument cannot have, with the argument's name and what came.
"""

from mvcl.losses._combine import *
from mvcl.losses._declaration import *
from mvcl.losses._dsf import *
from mvcl.losses._entrywise import *
from mvcl.losses._framework import *
from mvcl.losses._fused import *
from mvcl.losses._joint import *
from mvcl.losses._m3g import *
from mvcl.losses._moments import *
from mvcl.losses._pair import *
from mvcl.losses._singular import *
from mvcl.losses._sliced import *
from mvcl.losses._symile import *
from mvcl.losses._vmf import *
from mvcl.losses._volumes import *
from mvcl.losses._weights import *
