"""Claim: radii a thousand times the paper's, proved, on the authors' CIFAR-10 model and the real test set.

    python benchmarks/certificates.py DATA               all correctly classified test images; resumable
    python benchmarks/certificates.py DATA --images 200  only this many (a fixed random order)
    python benchmarks/certificates.py DATA --workers 2   in two processes of one thread each
    python benchmarks/certificates.py DATA --summary     no new images: summarize what the checkpoints hold
    python benchmarks/certificates.py DATA --images 40 --profile      where processor time goes, nothing else

DATA holds cifar10_model.npy and cifar-10-batches-bin/. For every image: the paper's radius (Lambert W), our
radius (method "best"), and the radius of the attack, an upper bound of the truth. Every such certificate is
attacked by random points, random corners and each rival's corner of steepest descent, and the smallest margin
there is enclosed by an Arb ball; for a sample of images (--checked, else 24) so is every method's, on the
first 24 with a ball for each rival. Each finished image is a line of a checkpoint; a second start continues
where the first stopped (after a change of the bounds delete the checkpoints).
Writes results/certificates.json, and the radii of every image to results/certificates.csv; exit code 1 if a
target is missed.

Targets: median of radius / attack's radius >= 0.98; its 5 % quantile >= 0.90; median of radius / paper's
radius >= 1000; no radius above the attack's, no broken certificate in the sample; <= 0.2 s of processor time
per image (two cores: 0.1 s).
"""

from __future__ import annotations

import cProfile
import json
import multiprocessing
import os
import pstats
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, Target, argument_parser, circumstances, save, verdict
from torch import Tensor

from mlayer.certificates import Certifier, attack
from mlayer.certificates.bounds.methods import names
from mlayer.files import load_authors_model
from mlayer.nn import MLayer

CHUNK = 20
METHODS = names()
ALL_BALLS = 24  # images
SAMPLES = 32  # random points, and random corners, for each method's radius of a checked image
TEST_IMAGES = 10000
work: Work  # of this process


def images(path: Path, rows: int | None = None) -> tuple[Tensor, Tensor]:
    """A CIFAR-10 batch: images of height x width x channel in [0, 1] as float64, and labels."""
    raw = np.fromfile(path, np.uint8).reshape(-1, 3073)[:rows]
    pixels = raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).reshape(-1, 3072)
    return torch.from_numpy(pixels / 255.0), torch.from_numpy(raw[:, 0].astype(np.int64))


def make_certifier(layer: MLayer, data: Path, file: Path) -> Certifier:
    """The certifier with its constants, kept next to the checkpoint."""
    if file.exists():
        return Certifier(layer, constants=file)
    train, _ = images(data / "cifar-10-batches-bin/data_batch_1.bin", 64)
    certifier = Certifier(layer, references=train, fit_steps=500)
    certifier.save(file)
    return certifier


def read(path: Path) -> dict[int, dict[str, Any]]:
    """The lines of a checkpoint, by image."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {line["image"]: line for line in map(json.loads, lines)}


class Work:
    """The certification of a chunk of images; built once in each process."""

    def __init__(self, data: Path, log: Path) -> None:
        torch.set_num_threads(1)
        self.layer = load_authors_model(data / "cifar10_model.npy", dtype=torch.float64)
        self.x, self.y = images(data / "cifar-10-batches-bin/test_batch.bin")
        self.certifier = make_certifier(self.layer, data, log.with_suffix(".npz"))

    def __call__(self, part: list[int], known: dict[int, float]) -> list[dict[str, Any]]:
        """The lines of some images; ``known`` holds radii of the attack from an earlier run."""
        x, y = self.x, self.y
        todo = [image for image in part if image not in known]
        if todo:
            found = attack(self.layer, x[todo], y[todo]).radius.tolist()
            known = {**known, **dict(zip(todo, found, strict=True))}
        paper = self.certifier(x[part], y[part], method="paper").radius.tolist()
        lines = []
        for image, closed_form in zip(part, paper, strict=True):
            start, wall = time.process_time(), time.perf_counter()
            one = self.certifier(x[image : image + 1], y[image : image + 1])
            spent, passed = time.process_time() - start, time.perf_counter() - wall
            radius = float(one.radius[0])
            lines.append(
                {
                    "image": image,
                    "radius": radius,
                    "attack": known[image],
                    "paper": closed_form,
                    "method": one.method[0],
                    "broken": violations(self.layer, x[image], int(y[image]), radius, balls=1),
                    "processor_seconds": spent,
                    "seconds": passed,
                }
            )
        return lines

    def check(self, image: int, attacked: float, balls: int | None) -> dict[str, Any]:
        """Every method's certificate of one image, attacked."""
        one, label = self.x[image : image + 1], self.y[image : image + 1]
        radii = {method: float(self.certifier(one, label, method=method).radius[0]) for method in METHODS}
        broken = {
            method: int(radius > attacked) + violations(self.layer, one[0], int(label), radius, balls)
            for method, radius in radii.items()
        }
        return {"image": image, "radii": radii, "balls": balls, "broken": broken}


def start_worker(data: Path, log: Path) -> None:
    """Build the certifier, once in each process of the pool."""
    global work  # noqa: PLW0603
    work = Work(data, log)


def work_on(task: tuple[list[int], dict[int, float]]) -> list[dict[str, Any]]:
    """Certify and attack the images of a task, in a process of the pool."""
    return work(*task)


def check_on(task: tuple[int, float, int | None]) -> list[dict[str, Any]]:
    """Check the certificates of one image, in a process of the pool."""
    return [work.check(*task)]


def in_processes(
    data: Path, log: Path, workers: int, function: Callable[[Any], list[dict[str, Any]]], tasks: list[Any]
) -> Iterator[list[dict[str, Any]]]:
    """The lines of each task, as they come in."""
    if not tasks:
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # read when the processes of the pool start
    with multiprocessing.get_context("spawn").Pool(workers, start_worker, (data, log)) as pool:
        yield from pool.imap_unordered(function, tasks)


def run(data: Path, todo: list[int], log: Path, workers: int) -> None:
    """Certify and attack the images ``todo``; this process writes one line each, as chunks come in."""
    attacks = log.with_name(log.stem + "-attack.jsonl")
    known = {image: line["attack"] for image, line in read(attacks).items()}
    parts = [todo[begin : begin + CHUNK] for begin in range(0, len(todo), CHUNK)]
    tasks = [(part, {image: known[image] for image in part if image in known}) for part in parts]
    with log.open("a") as file, attacks.open("a") as second:
        for lines in in_processes(data, log, workers, work_on, tasks):
            for line in lines:
                file.write(json.dumps(line) + "\n")
                if line["image"] not in known:
                    second.write(json.dumps({"image": line["image"], "attack": line["attack"]}) + "\n")
            file.flush()
            second.flush()


def run_checks(data: Path, order: list[int], log: Path, checks: Path, workers: int) -> None:
    """Every method's certificate of the images ``order``, attacked; one line each.

    A ball for each rival on the first `ALL_BALLS` images, on the others one where the margin is smallest.
    """
    attacked, done = read(log), read(checks)
    tasks = [
        (image, attacked[image]["attack"], None if place < ALL_BALLS else 1)
        for place, image in enumerate(order)
        if image not in done
    ]
    with checks.open("a") as file:
        for lines in in_processes(data, log, workers, check_on, tasks):
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()


def violations(layer: MLayer, x: Tensor, label: int, radius: float, balls: int | None = None) -> int:
    """The number of points within the radius whose margin is not positive.

    Random points, random corners and, for each rival, the corner of steepest descent, in float64; the last
    ones by balls too, as many as asked for, those of the smallest margins first.
    """
    random = torch.Generator().manual_seed(0)
    noise = torch.rand(2 * SAMPLES, len(x), generator=random, dtype=x.dtype) * 2 - 1
    noise[:SAMPLES] = noise[:SAMPLES].sign()
    point = x.clone().requires_grad_(True)
    outputs = layer(point[None])[0]
    rivals = [j for j in range(len(outputs)) if j != label]
    steepest = []
    for j in rivals:
        (g,) = torch.autograd.grad(outputs[label] - outputs[j], point, retain_graph=True)
        steepest.append(-g.sign())
    steps = torch.cat([torch.stack(steepest), noise]) * radius
    with torch.no_grad():
        values = layer(x + steps)
    own = values[:, label].clone()
    margins = [float(own[k] - values[k, j]) for k, j in enumerate(rivals)]
    values[:, label] = -torch.inf
    count = int((own <= values.max(1).values).sum())
    for k in sorted(range(len(rivals)), key=margins.__getitem__)[:balls]:
        count += not ball_margin(layer, (x + steps[k]).numpy(), label, rivals[k]) > 0
    return count


def ball_margin(layer: MLayer, x: Any, label: int, rival: int) -> Any:
    """The margin at one point as an Arb ball, from the stored weights."""
    import flint

    flint.ctx.prec = 128
    mat = flint.arb_mat
    assert layer.embedding is not None
    z = mat([x.tolist()]) * mat(layer.embedding.mT.tolist())
    M = mat(layer.matrix_bias.tolist()) if layer.matrix_bias is not None else mat(*[layer.matrix_size] * 2)
    for a, T in enumerate(layer.generators.tolist()):
        shift = 0.0 if layer.embedding_bias is None else layer.embedding_bias[a].item()
        M = M + mat(T) * (z[0, a] + shift)
    E = M.exp()
    W = (layer.readout[label] - layer.readout[rival]).tolist()
    total = sum(E[r, c] * W[r][c] for r in range(len(W)) for c in range(len(W)))
    if layer.output_bias is not None:
        total += flint.arb(layer.output_bias[label].item()) - flint.arb(layer.output_bias[rival].item())
    return total


def summary(lines: list[dict[str, Any]], total: int) -> dict[str, Any]:
    """Quantiles over the images in the checkpoint."""
    column = {name: np.array([line[name] for line in lines]) for name in lines[0]}
    part = column["radius"] / column["attack"]
    gain = column["radius"] / column["paper"]
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)

    def quantiles(values: Any) -> dict[str, float]:
        return {f"{q:g}": float(np.quantile(values, q)) for q in shares}

    return {
        "images": len(lines),
        "correct_images": total,
        "radius": quantiles(column["radius"]),
        "attack": quantiles(column["attack"]),
        "paper": quantiles(column["paper"]),
        "radius_over_attack": quantiles(part),
        "radius_over_paper": quantiles(gain),
        "violations": int((part > 1).sum()),
        "broken": int(column["broken"].sum()),
        "methods": {str(name): int((column["method"] == name).sum()) for name in np.unique(column["method"])},
        "histogram": histogram(column),
        "accuracy": curves(column, total),
        "certified_at_2_255": float((column["radius"] >= 2 / 255).mean()),
        "not_broken_at_2_255": float((column["attack"] > 2 / 255).mean()),
        "processor_seconds": quantiles(column["processor_seconds"]),
        "processor_seconds_mean": float(column["processor_seconds"].mean()),
    }


def histogram(column: dict[str, Any]) -> dict[str, list[float]]:
    """Images per bin of log10(radius): the paper's radii, ours and the attack's."""
    edges = np.arange(-8.0, -0.99, 0.25)
    result = {"log10_edges": edges.tolist()}
    for name in ("paper", "radius", "attack"):
        counts, _ = np.histogram(np.log10(np.maximum(column[name], 1e-300)), edges)
        result[name] = counts.tolist()
    return result


def curves(column: dict[str, Any], total: int) -> dict[str, list[float]]:
    """Certified accuracy on the test set against eps; the images seen stand for all that are correct."""
    eps = np.arange(0, 33) / 4 / 255
    share = total / TEST_IMAGES
    result = {"eps": eps.tolist()}
    for name in ("paper", "radius", "attack"):
        result[name] = [float(share * (column[name] >= e).mean()) for e in eps]
    return result


def write_radii(lines: list[dict[str, Any]]) -> None:
    """One line per image, for pictures."""
    rows = [f"{k['image']},{k['paper']:.6g},{k['radius']:.6g},{k['attack']:.6g}" for k in lines]
    text = "image,paper,radius,attack\n" + "\n".join(rows) + "\n"
    (RESULTS / "certificates.csv").write_text(text)


# Parts of the work, by the files and functions that they are done in, with all that these call.
PARTS = {
    "rows and rivals together": ("rows_batched.py rows_together",),
    "caps": ("caps.py passes",),
    "cubic and quartic tensors (also in caps)": ("spectral.py third", "quartic_tensor.py quartic_form"),
    "fits of weights to a pair (also in caps)": ("quadratic_terms.py _fit",),
    "remainders with the readout inside": ("remainder.py _coefficients",),
}


def profile(certifier: Certifier, x: Tensor, y: Tensor) -> None:
    """Shares of the processor time by part, for decisions and for radii; the functions with most of it."""
    certifier(x[:1], y[:1])  # loads what is loaded once
    for eps in (2 / 255, 0.02, None):
        recorder = cProfile.Profile(time.process_time)
        recorder.enable()
        found = certifier(x, y, eps=eps)
        recorder.disable()
        stats = pstats.Stats(recorder)
        calls: Any = stats.stats  # type: ignore[attr-defined]
        total: float = stats.total_tt  # type: ignore[attr-defined]
        print(
            f"eps {eps}: {int(found.certified.sum())} of {len(x)} certified, {total / len(x):.4f} s per image"
        )
        for part, places in PARTS.items():
            inside = [
                row[3] for (file, _, name), row in calls.items() if f"{Path(file).name} {name}" in places
            ]
            print(f"    {sum(inside) / total:.0%} {part}")
        stats.sort_stats("tottime").print_stats(8)


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--images", type=int, help="how many of the correctly classified images")
    parser.add_argument("--checkpoint", type=Path, default=RESULTS.parent / "build" / "certificates.jsonl")
    parser.add_argument("--checked", type=int, default=24, help="images whose every certificate is attacked")
    parser.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    layer = load_authors_model(options.data / "cifar10_model.npy", dtype=torch.float64)
    x, y = images(options.data / "cifar-10-batches-bin/test_batch.bin")
    with torch.no_grad():
        correct = np.flatnonzero((layer(x).argmax(1) == y).numpy())
    order = np.random.default_rng(0).permutation(correct)[: options.images].tolist()
    log: Path = options.checkpoint
    log.parent.mkdir(parents=True, exist_ok=True)
    certifier = make_certifier(layer, options.data, log.with_suffix(".npz"))
    if options.profile:
        profile(certifier, x[order], y[order])
        return 0
    checks = log.with_name(log.stem + "-checked.jsonl")
    if not options.summary:
        done = read(log)
        run(options.data, [image for image in order if image not in done], log, options.workers)
        run_checks(options.data, order[: options.checked], log, checks, options.workers)
    lines = list(read(log).values())
    write_radii(lines)
    figures = summary(lines, len(correct))
    checked = read(checks).values()
    figures["checked_images"] = len(checked)
    figures["broken_in_checked"] = {m: sum(k["broken"][m] for k in checked) for m in METHODS}
    figures["median_radius_in_checked"] = {
        m: float(np.median([k["radii"][m] for k in checked])) for m in METHODS if checked
    }
    constants = certifier.constants
    figures["constants"] = {
        name: getattr(constants, name) for name in ("delta_in", "readout_norm", "delta_F", "delta_2")
    }
    for name, value in figures.items():
        print(name, value)
    targets = [
        Target("median of radius / attack", 0.98, figures["radius_over_attack"]["0.5"]),
        Target("5 % quantile of radius / attack", 0.90, figures["radius_over_attack"]["0.05"]),
        Target("median of radius / paper's radius", 1000, figures["radius_over_paper"]["0.5"]),
        Target("radii above the attack's", 0, figures["violations"], at_most=True),
        Target("broken certificates", 0, figures["broken"], at_most=True),
        Target(
            "broken certificates in the sample", 0, sum(figures["broken_in_checked"].values()), at_most=True
        ),
        Target("processor seconds per image, mean", 0.2, figures["processor_seconds_mean"], at_most=True),
    ]
    figures["targets"] = [str(target) for target in targets]
    command = "python benchmarks/certificates.py DATA"  # without the path of the data here
    save("certificates", {**circumstances(), "command": command, **figures})
    return verdict(targets)


if __name__ == "__main__":
    sys.exit(main())
