"""The PyTorch side of `benchmarks.released`, which starts it: losses of released repositories, timed on request.

Needs torch, numpy and einops, and nothing of mvcl. Only the definitions of the losses are taken from the files of a
repository; what else the files would do when imported does not happen. A request is a line of JSON on stdin,
`{"loss": NAME, "input": FILE.npy, "calls": C}`, the input float32 of shape (k, n, d). The answer is a line on stdout
with the value, the mean seconds of C values and gradients (of the CPU's time; on a GPU of the clock's), the peak of
memory in MB that they took, and the gradient's file.
"""

import argparse
import ast
import ctypes
import itertools
import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Optional

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

Loss = Callable[[Tensor], Tensor]
Shape = tuple[int, int, int]
HIDDEN = 512  # of the critics of FactorCL


def definitions(file: Path, *names: str, **given: Any) -> SimpleNamespace:
    """These functions and classes of a file, without running the rest of it; `given` are names that they use."""
    chosen = [
        node
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names
    ]
    if {node.name for node in chosen} != set(names):
        raise FileNotFoundError(f"{file} does not define {', '.join(names)}")
    space = {"torch": torch, "nn": nn, "F": F, "Tensor": Tensor, "dist": distributed, "np": np}
    space |= {"List": list, "Tuple": tuple, "Any": Any, "Literal": Literal, "Optional": Optional} | given
    exec(compile(ast.Module(chosen, []), str(file), "exec"), space)
    return SimpleNamespace(**{name: space[name] for name in names})


def unit(z: Tensor) -> Tensor:
    return F.normalize(z, dim=-1)


def both_directions(measure: Callable[..., Tensor], z: Tensor) -> Tensor:
    """The loss of a matrix of volumes or areas, as the steps of GRAM and TRIANGLE compute it: the matrix twice."""
    rows, columns = measure(*z) / 0.07, measure(*z).T / 0.07
    targets = torch.arange(len(rows))
    return (
        F.cross_entropy(-rows, targets, label_smoothing=0.1)
        + F.cross_entropy(-columns, targets, label_smoothing=0.1)
    ) / 2


def symile(folder: Path, shape: Shape, negatives: str) -> Loss:
    loss = definitions(folder / "symile/symile/loss.py", "Symile").Symile(negatives)
    return lambda z: loss(list(unit(z)), 1.0)


def gram(folder: Path, shape: Shape) -> Loss:
    name = f"volume_computation{shape[0]}"
    volume = vars(definitions(folder / "GRAM/utils/volume.py", name))[name]
    return lambda z: both_directions(volume, unit(z))


def triangle(folder: Path, shape: Shape) -> Loss:
    area = definitions(folder / "TRIANGLE/utils/area.py", "area_computation").area_computation
    return lambda z: both_directions(area, unit(z))


def pmrl(folder: Path, shape: Shape) -> Loss:
    file = folder / "PMRL/utils/eigen.py"
    decompose = definitions(file, "eigenvalue_computation_pmcl").eigenvalue_computation_pmcl

    def loss(z: Tensor) -> Tensor:
        vectors, values = decompose(list(unit(z)))
        first = torch.zeros(len(values), dtype=torch.long)
        leading = vectors[:, :, 0]
        between = F.cross_entropy(leading @ leading.T / 0.1, torch.arange(len(leading)))
        return F.cross_entropy(values / 0.05, first) + between

    return loss


def vicreg(folder: Path, shape: Shape) -> Loss:
    file = folder / "vicreg/main_vicreg.py"
    gather = SimpleNamespace(apply=lambda x: (x,))  # of one process
    model = definitions(file, "VICReg", "off_diagonal", FullGatherLayer=gather).VICReg
    same = nn.Identity()
    weights = SimpleNamespace(batch_size=shape[1], sim_coeff=25.0, std_coeff=25.0, cov_coeff=1.0)
    of = SimpleNamespace(projector=same, backbone=same, args=weights, num_features=shape[2])
    return lambda z: model.forward(of, z[0], z[1])


def barlow_twins(folder: Path, shape: Shape) -> Loss:
    library = SimpleNamespace(**vars(torch))
    library.distributed = SimpleNamespace(all_reduce=lambda c: None)
    model = definitions(
        folder / "barlowtwins/main.py", "BarlowTwins", "off_diagonal", torch=library
    ).BarlowTwins
    same = nn.Identity()
    weights = SimpleNamespace(batch_size=shape[1], lambd=0.0051)
    normalize = nn.BatchNorm1d(shape[2], affine=False)
    of = SimpleNamespace(projector=same, backbone=same, args=weights, bn=normalize)
    return lambda z: model.forward(of, z[0], z[1])


def mmcr(folder: Path, shape: Shape) -> Loss:
    import einops  # of this loss alone

    k, n, d = shape
    file = folder / "mmcr/mmcr/imagenet/loss_mmcr.py"
    loss = definitions(file, "MMCR_Loss", einops=einops).MMCR_Loss(0.0, k, distributed=False)
    return lambda z: loss(z.transpose(0, 1).reshape(n * k, d))[0]


def emp_ssl(folder: Path, shape: Shape) -> Loss:
    coding_rate = definitions(folder / "EMP-SSL/loss.py", "TotalCodingRate").TotalCodingRate(eps=0.2)
    parts = definitions(folder / "EMP-SSL/main.py", "Similarity_Loss", "cal_TCR")
    similarity = parts.Similarity_Loss()

    def loss(z: Tensor) -> Tensor:
        rows = unit(z).reshape(-1, shape[2])
        contraction, _ = similarity(rows.chunk(shape[0]), None)
        return 200 * contraction + parts.cal_TCR(rows, coding_rate, shape[0])

    return loss


def emp_ssl_port(folder: Path, shape: Shape) -> Loss:
    file = folder / "lightly/lightly/loss/emp_ssl_loss.py"
    names = ("EMPSSLLoss", "tcr_loss", "invariance_loss")
    loss = definitions(file, *names, Module=nn.Module).EMPSSLLoss()
    return lambda z: loss(list(unit(z)))


def lejepa(folder: Path, shape: Shape) -> Loss:
    package = folder / "lejepa/lejepa"
    available = "is_dist_avail_and_initialized"
    base = definitions(package / "univariate/base.py", "UnivariateTest", available)
    # of one process, which has nothing to reduce
    alone = {"ReduceOp": SimpleNamespace(AVG=None), "functional_all_reduce": lambda x, *_: x}
    file, name = package / "univariate/epps_pulley.py", "EppsPulley"
    test = definitions(file, name, "all_reduce", UnivariateTest=base.UnivariateTest, **alone)
    file = package / "multivariate/slicing.py"
    slicing = definitions(file, "SlicingUnivariateTest", "all_reduce", **alone)
    gaussian = slicing.SlicingUnivariateTest(test.EppsPulley(), num_slices=1024)
    # the prediction term and the sum are those of the repository's MINIMAL.md
    return lambda z: 0.95 * (z.mean(0) - z).square().mean() + 0.05 * gaussian(z)


def visreg(folder: Path, shape: Shape) -> Loss:
    regularize = definitions(folder / "visreg/visreg/losses/visreg.py", "VISReg", math=math).VISReg(4096)

    def loss(z: Tensor) -> Tensor:
        """The prediction term and the sum are those of the repository's train.py, all views global."""
        return 0.1 * (z - z.mean(0, keepdim=True)).square().mean() + 0.9 * regularize(z)

    return loss


def koromilas(folder: Path, shape: Shape, names: tuple[str, ...], **options: Any) -> Loss:
    """A loss of Koromilas 2025, which takes the views below each other and returns an accuracy too."""
    from einops import rearrange

    file = folder / "Multi-View-CL/models/losses.py"
    found = definitions(file, *names, itertools=itertools, rearrange=rearrange)
    loss = vars(found)[names[0]](multiplier=shape[0], **options)
    return lambda z: loss(z.reshape(-1, shape[2]))[0]


def sem(folder: Path, shape: Shape) -> Loss:
    """InfoNCE of all ordered pairs of views, a view with itself too, as SEM's train.py sums it; weights are 1."""
    n = shape[1]
    loss = definitions(folder / "SEM/loss.py", "Loss").Loss(n, None, 1.0, "cpu")

    def total(z: Tensor) -> Tensor:
        z = unit(z)
        return sum(loss.forward_feature_InfoNCE(x, y, batch_size=n) for x in z for y in z)

    return total


def dsf(folder: Path, shape: Shape) -> Loss:
    """DSF of MoCo v3, between the first half of the views and the others."""
    models = folder / "DSF/utils/models"
    divergence = definitions(models / "dsf.py", "DSF_KLD_MoCov3", "vMF").DSF_KLD_MoCov3
    model = definitions(models / "mocov3.py", "MoCo_DSF", "MoCo", DSF_KLD_MoCov3=divergence).MoCo_DSF
    k, n, d = shape
    options = {"batch_size": n, "moco_dim": d, "ns": k // 2, "R_bar_coeff": 0.95, "kappa_normalization": True}
    of = SimpleNamespace(args=SimpleNamespace(**options, kld_t=1.0, distributed=False))

    def rows(group: Tensor) -> Tensor:  # the views of an instance below each other
        return group.transpose(0, 1).reshape(-1, d)

    return lambda z: model.contrastive_loss(of, rows(z[: k // 2]), rows(z[k // 2 :]))


def dcl(folder: Path, shape: Shape) -> Loss:
    file = folder / "Decoupled-Contrastive-Learning/loss/dcl.py"
    loss = definitions(file, "DCL", SMALL_NUM=math.log(1e-45)).DCL(0.1)

    def both(z: Tensor) -> Tensor:
        x, y = unit(z)
        return (loss(x, y) + loss(y, x)) / 2

    return both


def dhel(folder: Path, shape: Shape) -> Loss:
    loss = definitions(folder / "DHEL-KCL/losses.py", "DHEL").DHEL(0.3)
    return lambda z: loss(z.reshape(-1, shape[2]))


def rince(folder: Path, shape: Shape) -> Loss:
    file = folder / "RINCE/ImageNet/simclr/simclr_module.py"
    environment = SimpleNamespace(environ={"LOCAL_RANK": "0"})
    model = definitions(file, "SimCLR", LightningModule=object, os=environment).SimCLR
    of = SimpleNamespace(num_nodes=1, gpus=1, batch_size=shape[1], num_pos=2)
    of.compute_neg_mask = lambda: model.compute_neg_mask(of)
    return lambda z: model.sym_loss(of, *unit(z), 0.001, 0.5, 0.5)


def comm(folder: Path, shape: Shape, file: str = "CoMM/losses/comm_loss.py", name: str = "CoMMLoss") -> Loss:
    """Of two augmentations, all views fused last; of InfMasking the second half are fusions of masked tokens."""
    loss = vars(definitions(folder / file, name, func=F, all_gather_batch_with_grad=lambda z: z))[name]()
    loss.mask_lambda, masked = 1.0, name != "CoMMLoss"

    def total(z: Tensor) -> Tensor:
        z, k = z[: len(z) // 2] if masked else z, z[len(z) // 2 :]
        found = {"aug1_embed": [*z[: len(z) // 2]], "aug2_embed": [*z[len(z) // 2 :]], "prototype": -1}
        found |= {"mask_out1": [[*k[: len(k) // 2]]], "mask_out2": [[*k[len(k) // 2 :]]]}
        return loss(found | {"epoch": 0, "max_epochs": 2})["loss"]

    return total


def factor_cl(folder: Path, shape: Shape) -> Loss:
    """Of MultiBench, whose heads are parts of the embeddings here; `released_cases.factor_critics` has the weights."""
    critics = definitions(
        folder / "FactorCL/critic_objectives.py", "mlp", "InfoNCECritic", "CLUBInfoNCECritic"
    )
    model = definitions(folder / "FactorCL/multibench_model.py", "FactorCLSSL").FactorCLSSL
    names = "infonce_x1x2 club_x1x2_cond infonce_x1y infonce_x2y infonce_x1x2_cond club_x1x2"
    d, of, draw = shape[2], SimpleNamespace(backbones=[nn.Identity()] * 2), np.random.default_rng(0)
    for name in names.split():
        made = critics.CLUBInfoNCECritic if "club" in name else critics.InfoNCECritic
        critic = made(*[d * (1 + ("cond" in name))] * 2, HIDDEN, 1, "relu")
        for p in critic.parameters():
            p.data = torch.tensor(draw.standard_normal(p.shape) / p.shape[-1] ** 0.5, dtype=torch.float32)
        start = 0 if name in ("infonce_x1x2", "club_x1x2_cond") else d
        head = partial(torch.narrow, dim=-1, start=start, length=d)
        setattr(of, name, critic)
        setattr(of, f"linears_{name}", head if "y" in name else [head] * 2)
    return lambda z: model.forward(of, *torch.cat([z[[0, 1, 2, 3]], z[[4, 5, 6, 7]]], -1))


def of_file(folder: Path, shape: Shape, file: str, name: str, call: Callable[[Any, Tensor], Tensor]) -> Loss:
    """A function, or an instance of a class without arguments, called so."""
    made = vars(definitions(folder / file, name))[name]
    return partial(call, made() if isinstance(made, type) else made)


FILES: dict[str, tuple[str, str, Callable[[Any, Tensor], Tensor]]] = {
    "info_nce": ("open_clip/src/open_clip/loss.py", "ClipLoss", lambda f, z: f(*unit(z), 10.0)),
    "siglip": ("open_clip/src/open_clip/loss.py", "SigLipLoss", lambda f, z: f(*unit(z), 10.0, -10.0)),
    "spectral": ("spectral_contrastive_learning/models/spectral.py", "D", lambda f, z: f(*unit(z))[0]),
    "byol": ("solo-learn/solo/losses/byol.py", "byol_loss_func", lambda f, z: f(*z)),
    "frossl": ("FroSSL/solo/losses/frossl.py", "multiview_frossl_loss_func", lambda f, z: f(list(z))),
    "frossl_two_views": ("FroSSL/solo/losses/frossl.py", "frossl_loss_func", lambda f, z: f(*z)),
}
# Of Koromilas 2025: the class, what it needs, its options.
KOROMILAS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "nt_xent": (("NTXent", "accuracy"), {"tau": 0.5}),
    "all_pairs": (("NTXent", "accuracy"), {"tau": 0.5, "pwe": True}),
    "one_vs_rest": (("NTXent", "accuracy"), {"tau": 0.5, "average": True}),
    "mv_infonce": (("MVINFONCE",), {"tau": 0.5}),
    "mv_dhel": (("MVDHEL",), {"tau": 0.5}),
    "mv_cl1": (("CL_1",), {"tau": 0.5}),
    "mv_cl2": (("CL_2",), {"tau": 0.5}),
    "poly_view": (("PVCLoss",), {"tau": 0.1}),
}
LOSSES: dict[str, Callable[[Path, Shape], Loss]] = {
    made.__name__: made
    for made in (gram, triangle, pmrl, vicreg, barlow_twins, mmcr, emp_ssl, emp_ssl_port, lejepa, visreg)
    + (sem, dsf, dcl, dhel, rince, comm, factor_cl)
}
LOSSES |= {name: partial(of_file, file=f, name=of, call=call) for name, (f, of, call) in FILES.items()}
LOSSES |= {name: partial(koromilas, names=names, **more) for name, (names, more) in KOROMILAS.items()}
LOSSES |= {
    "inf_masking": partial(comm, file="InfMasking/losses/infmasking_loss.py", name="InfMaskingLoss"),
    "symile_all": partial(symile, negatives="n_squared"),
    "symile_shuffled": partial(symile, negatives="n"),
}


def memory(field: str) -> float:
    """MB of this process: VmRSS, or VmHWM, its peak since the last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith(field))


def answer(loss: Loss, z: Tensor, gradient: Path, calls: int = 1) -> dict[str, Any]:
    """Value and gradient of a loss, so many times."""
    on_gpu = z.device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, start = torch.cuda.memory_allocated() / 1e6 if on_gpu else memory("VmRSS"), clock()
    for _ in range(calls):
        z = z.detach().clone().requires_grad_()
        value = loss(z)
        value.backward()
    if on_gpu:
        torch.cuda.synchronize()
    seconds = (clock() - start) / calls
    peak = torch.cuda.max_memory_allocated() / 1e6 if on_gpu else memory("VmHWM")
    assert z.grad is not None
    np.save(gradient, z.grad.cpu().numpy())
    return {"value": value.item(), "seconds": seconds, "mb": peak - before, "gradient": str(gradient)}


def serve(released: Path, device: str) -> None:
    """Answers requests until stdin ends."""
    made: dict[tuple[str, str], tuple[Loss, Tensor]] = {}
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        name, file = request["loss"], request["input"]
        try:
            if (name, file) not in made:
                z = torch.from_numpy(np.load(file)).to(device)
                made[name, file] = LOSSES[name](released, tuple(z.shape)), z
                ctypes.CDLL(None).malloc_trim(0)  # or the first call's peak is in what others have left
            torch.manual_seed(0)
            found = answer(*made[name, file], Path(file).with_name(f"{name}.npy"), request["calls"])
        except (FileNotFoundError, ImportError) as error:
            found = {"missing": str(error)}
        except (KeyError, RuntimeError) as error:  # no such code, no memory, or not on this device
            found = {"missing": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--released", type=Path, required=True, help="folder with a checkout per repository")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_device(options.device)
    # what released code moves to a GPU stays where it is
    Tensor.cuda = nn.Module.cuda = lambda x, *_, **__: x
    warnings.simplefilter("ignore")
    serve(options.released, options.device)


if __name__ == "__main__":
    main()
