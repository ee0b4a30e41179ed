"""The smoke variants of the configs through the command line: train, evaluate and report, offline.

    python -m benchmarks.smoke [CONFIG ...]

Prints a line for each: seconds, the loss at the first and the last step, and the first number of the evaluation.
The exit code is 1 if one fails, the end of whose output follows. A signal (SIGINT, SIGTERM) ends it.
"""

import contextlib
import io
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

# Programs of a few steps: compiling takes longer than running.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

from mvcl import _configs, cli

# Variants whose paper fine-tunes, and the options of a short run.
FINETUNED = {"shidani/imagenet1k:smoke": "--seeds 1 --train.steps 2 --train.batch-size 8 --train.log-every 1"}


def smoke_variants() -> list[str]:
    """NAME:VARIANT of every function of a config whose name starts with `smoke`."""
    return [
        f"{name}:{variant}"
        for name, file in _configs.names().items()
        for variant in _configs.variants(file)
        if variant.startswith("smoke")
    ]


def smoke(source: str, workdir: Path) -> str:
    """Train, evaluate, report and, for those of FINETUNED, fine-tune in a folder.

    Returns:
      Loss and score, as text.

    Raises:
      RuntimeError: a command fails, or what it writes is not there or not finite.
    """
    _call("train", source, "--workdir", str(workdir))
    run = workdir
    if (run / "config.json").is_file():
        _call("evaluate", str(run))
        _call("report", str(run))
        if source in FINETUNED:
            _call("finetune", str(run), *FINETUNED[source].split())
    else:  # a study, which trains and evaluates runs in folders of their own and writes its page
        run = min(path.parent for path in workdir.rglob("config.json"))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    results = json.loads((run / "evaluation.json").read_text())["rows"]["trained encoder"]
    if not losses or not all(map(math.isfinite, losses)) or not math.isfinite(results[0]["value"]):
        raise RuntimeError(f"losses {losses}, results {results}")
    return f"loss {losses[0]:8.4f} to {losses[-1]:8.4f}  {results[0]['name']} {results[0]['value']:.3f}"


def _call(*arguments: str) -> None:
    code = cli.main(arguments)
    if code > 128:  # a signal stopped the command, and so it stops this one
        raise SystemExit(code)
    if code:
        raise RuntimeError(f"mvcl {' '.join(arguments)}: exit code {code}")


def main() -> int:
    """Run all, or those that are named."""
    started, failed = time.monotonic(), {}
    sources = sys.argv[1:] or smoke_variants()
    for source in sources:
        output, before = io.StringIO(), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                    text = smoke(source, Path(folder) / "run")
            except Exception as error:
                text, failed[source] = f"FAILED: {error}", output.getvalue()
        print(f"{source:<44} {time.monotonic() - before:5.1f} s  {text}", flush=True)
    print(f"{len(sources) - len(failed)} of {len(sources)} pass, {time.monotonic() - started:.0f} s")
    for source, text in failed.items():
        print(f"\n{source}\n{text[-4000:]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
