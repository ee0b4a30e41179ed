"""Log-sum-exps of blocks of similarities: what the objectives spend their time on.

A block is the matrix of inner products of the n vectors of one view with those of another. Every objective is
a cheap function of the log-sum-exps of rows and columns of such blocks. Here each block is computed once and
gives both: the block of views (m, l) is the transpose of (l, m). The rules that make it fast, all exact:

- On the unit sphere an inner product is at most 1/temperature, so one fixed shift serves for every
  exponential and no row maximum is needed, as long as exp(-2/temperature) does not underflow. Otherwise
  (small temperature, or vectors that are not of unit length) rows and columns get their own. A traced
  temperature decides when it is known.
- With the fixed shift the gradient is `E * (u_i + v_j)`, E the exponentials of the forward pass, u and v the
  cotangents of the rows' and columns' sums: no exponential is taken twice.
- A view's block with itself is symmetric: its gradient is one product with `W + W^T`.
- In blocks of rows, E is recomputed tile by tile and never stored.

`blocks` chooses between `dense` (whole blocks, derivatives of both modes and every order), `tiled` (rows of a
block at a time) and `sharded` (instances split over devices). The last two have reverse mode only.
"""

from mvcl.losses._lse.blocks import across as across
from mvcl.losses._lse.blocks import against_all as against_all
from mvcl.losses._lse.blocks import block_rows as block_rows
from mvcl.losses._lse.blocks import over_devices as over_devices
from mvcl.losses._lse.blocks import within as within
from mvcl.losses._lse.operand import Vectors as Vectors
from mvcl.losses._lse.operand import either as either
from mvcl.losses._lse.operand import fixed_shift as fixed_shift
from mvcl.losses._lse.operand import log_sum as log_sum
