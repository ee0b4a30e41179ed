"""Files of a run to damage: configs, weights and checkpoints, and how they are read back."""

import json
import struct

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from mutations import Format

from mvcl import models, report, training

# Configs


def write_config(folder):
    config = training.Config()
    for table, name in (
        ("objective", "m3g"),
        ("method", "moco_v2"),
        ("optimizer", "lars"),
        ("data", "tables"),
    ):
        config = training.choose(config, table, name)
    (folder / "config.json").write_text(training.to_json(config))


def with_values(**values):
    """A config with other values of fields, by dotted name."""

    def craft(folder):
        file = folder / "config.json"
        tree = json.loads(file.read_text())
        for name, value in values.items():
            *path, last = name.split("__")
            node = tree
            for part in path:
                node = node[part]
            node[last] = value
        file.write_text(json.dumps(tree))
        return file

    return craft


def config_of(content):
    def craft(folder):
        (folder / "config.json").write_bytes(content)
        return folder / "config.json"

    return craft


CONFIG = {
    "steps of text": with_values(train__steps="many"),
    "steps in a list": with_values(train__steps=[1]),
    "a fraction of a batch": with_values(train__batch_size=1.5),
    "batch of truth": with_values(train__batch_size=True),
    "2^63 steps": with_values(train__steps=2**63),
    "10^400 steps": with_values(train__steps=10**400),
    "no data": with_values(data=None),
    "data of text": with_values(data="tables"),
    "method as data": with_values(data={"_type": "mvcl.training.Train"}),
    "a function as data": with_values(data={"_function": "mvcl.losses.nt_xent"}),
    "an option of an objective": with_values(objective={"_function": "mvcl.losses.nt_xent", "bogus": 1}),
    "an objective without a name": with_values(objective={"temperature": 1}),
    "a name that is a list": with_values(objective={"_function": ["mvcl.losses.nt_xent"]}),
    "both a type and a function": with_values(objective={"_function": "mvcl.losses.nt_xent", "_type": "Train"}),
    "nested objects": config_of(b'{"a":' * 100_000),
    "nested lists": config_of(b"[" * 900 + b"]" * 900),
    "a number of 4000 digits": config_of(b"9" * 4000),
    "a number of 10^6 digits": config_of(b"9" * 10**6),
    "5 MiB of lists": config_of(b"[" + b"[]," * (5 << 20) + b"1]"),
    "a list of 3 10^5 lists": config_of(b"[" + b"[]," * 300_000 + b"1]"),
    "not UTF-8": config_of(b'{"_type": "\xff"}'),
    "UTF-16": config_of('{"_type": "mvcl.training.Config"}'.encode("utf-16")),
    "byte-order mark": config_of(b"\xef\xbb\xbf{}"),
    "one of two": config_of(b'{"_type": "mvcl.training.Config"'),
}  # fmt: skip


# Weights


def encoder():
    return models.ConvNet(widths=(4, 8)).build((8, 8, 3), dtype=jnp.float32, rngs=nnx.Rngs(0))


def write_weights(folder):
    models.export(encoder(), models.ConvNet(widths=(4, 8)), folder / "encoder.safetensors")


def read_weights(folder):
    models.load_exported(encoder(), folder / "encoder.safetensors")


def weights_of(header, content=b""):
    def craft(folder):
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        (folder / "encoder.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + content)
        return folder / "encoder.safetensors"

    return craft


def tensor(dtype, shape, *offsets):
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}}


WEIGHTS = {
    "2^40 numbers": weights_of(tensor("F32", [2**40], 0, 2**42)),
    "shape that overflows": weights_of(tensor("F32", [2**32, 2**32, 2**32], 0, 0)),
    "negative offsets": weights_of(tensor("F32", [2], -8, 0)),
    "offsets that overlap": weights_of(
        tensor("F32", [2], 0, 8) | {"y": tensor("F32", [2], 0, 8)["x"]}, bytes(8)
    ),
    "unknown dtype": weights_of(tensor("Q32", [2], 0, 8), bytes(8)),
    "bfloat16": weights_of(tensor("BF16", [2], 0, 4), bytes(4)),
    "float8": weights_of(tensor("F8_E4M3", [2], 0, 2), bytes(2)),
    "float4": weights_of(tensor("F4", [2], 0, 1), bytes(1)),
    "nested header": weights_of(b'{"x":' * 100_000),
    "header of 2^63 bytes": lambda folder: (
        weights_of(b"")(folder).write_bytes(struct.pack("<Q", 2**63)) and None
    ),
    "10^5 tensors": weights_of({f"x{i}": tensor("F32", [0], 0, 0)["x"] for i in range(10**5)}),
}


# Checkpoints


def state(step):
    sharding = NamedSharding(Mesh(np.asarray(jax.devices()[:1]), ("data",)), PartitionSpec())
    tree = {"w": jnp.arange(64.0) + step, "deep": {"b": jnp.ones((3, 5)) * step}, "step": jnp.int32(step)}
    return jax.tree.map(lambda x: jax.device_put(x, sharding), tree)


def write_checkpoints(folder):
    manager = training.Checkpoints(folder / "checkpoints", 2)
    for step in (1, 2):
        manager.save(step, state(step), {"seed": 0, "epoch": step})
        manager.wait()
    manager.close()


def read_checkpoints(step=None):
    """Restores the newest checkpoint, or that of a step; the arrays must be those of a checkpoint, bit by bit."""

    def read(folder):
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(0))
        manager = training.Checkpoints(folder / "checkpoints", 2)
        try:
            manager.best()
            restored = manager.restore(like, step, log=lambda text: None)
        finally:
            manager.close()
        if restored is not None:
            found, record = restored
            jax.tree.map(np.testing.assert_array_equal, found, state(int(found["step"])))
            assert record["seed"] == 0

    return read


# Reports


def write_run(folder):
    config = training.Config()
    (folder / "config.json").write_text(training.to_json(config))
    rows = [
        {"step": s, "loss": 1.0 / s, "chance": 2.0, "effective_rank": 3.0, "seconds_step": 0.1}
        for s in range(1, 20)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = [{"name": "5-NN", "value": 0.9, "deviation": 0.01, "protocol": "leave one out"}]
    table = {"step": 19, "rows": {"trained encoder": results, "raw input": results}, "warnings": ["a text"]}
    (folder / "evaluation.json").write_text(json.dumps(table))
    refresh = {"step": 5, "weights": [[0.0, 1.0], [1.0, 0.0]], "clusters": [[0, 1, 1], [1, 0, 1]]}
    (folder / "refresh.jsonl").write_text(json.dumps(refresh) + "\n")
    rng = np.random.default_rng(0)
    np.savez_compressed(folder / "embeddings.npz", features=rng.normal(size=(9, 4)).astype(np.float32),
                        labels=np.arange(9) % 3, class_names=["a", "b", "c"])  # fmt: skip
    images = rng.integers(0, 256, (3, 8, 8, 3), np.uint8)
    np.savez_compressed(folder / "views.npz", images=images, views=np.stack([images] * 2, 1), labels=np.arange(3),
                        sizes=np.array([8, 8]), view_names=["one", "two"], class_names=["a", "b", "c"])  # fmt: skip


def read_run(folder):
    """Writes the page; it lists the files that cannot be read."""
    report.write_report([folder], folder / "report.html")


FORMATS = {
    one.name: one
    for one in (
        Format("config.json", write_config, lambda folder: training.load(folder), crafted=CONFIG),
        Format(".safetensors", write_weights, read_weights,
               crafted=WEIGHTS),
        Format("checkpoints", write_checkpoints, read_checkpoints(), names=lambda file: ["/checkpoints"]),
        Format("checkpoint of a step", write_checkpoints, read_checkpoints(2), names=lambda file: ["/checkpoints"]),
        Format("run folder in a report", write_run, read_run),
    )
}  # fmt: skip
