"""Files as torch.save writes them, without PyTorch: stubs have the names that its pickles refer to."""

import collections
import io
import os
import pickle
import sys
import types
import zipfile
from unittest import mock

import numpy as np

KINDS = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long"}


class Parameter:
    """An array that is saved as a parameter, not as a tensor."""

    def __init__(self, array):
        self.array = array


class Bomb:
    """Creates a folder when unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def save(tree, path):
    """Write nested dictionaries of arrays and of anything that pickles."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
        setattr(utils, name, function := types.FunctionType((lambda *_: None).__code__, {}, name))
        function.__module__, function.__qualname__ = "torch._utils", name
    for kind in KINDS.values():
        setattr(torch, f"{kind}Storage", type(f"{kind}Storage", (), {"__module__": "torch"}))
    storages = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return value if isinstance(value, tuple) and isinstance(next(iter(value), 0), str) else None

        def reducer_override(self, value):
            hooks = collections.OrderedDict()
            if isinstance(value, Parameter):
                return utils._rebuild_parameter, (value.array, True, hooks)
            if not isinstance(value, np.ndarray):
                return NotImplemented
            base = value if value.base is None else value.base
            if not any(base is known for known in storages):
                storages.append(base)
            key = next(i for i, known in enumerate(storages) if base is known)
            place = value.ctypes.data - base.ctypes.data
            kind = getattr(torch, f"{KINDS[value.dtype.name]}Storage")
            strides = tuple(stride // value.itemsize for stride in value.strides)
            storage = ("storage", kind, str(key), "cuda:0", base.size)
            return utils._rebuild_tensor_v2, (
                storage, place // value.itemsize, value.shape, strides, False, hooks
            )  # fmt: skip

    pickled = io.BytesIO()
    with mock.patch.dict(sys.modules, {"torch": torch, "torch._utils": utils}):
        Pickler(pickled, 2).dump(tree)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled.getvalue())
        archive.writestr("archive/version", "3\n")
        for key, storage in enumerate(storages):
            archive.writestr(f"archive/data/{key}", storage.tobytes())
