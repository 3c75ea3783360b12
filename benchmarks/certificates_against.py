"""Claim: decisions at a fixed eps five times as fast as those of an earlier version, radii 1.5 times.

    git worktree add OLD COMMIT                            an earlier version; compile its kernel there
    python benchmarks/certificates_against.py DATA OLD     the first 60 images of benchmarks/certificates.py
    python benchmarks/certificates_against.py DATA OLD --images 200 --eps 0.00784 0.02

DATA holds cifar10_model.npy and cifar-10-batches-bin/. Both versions certify the same correctly classified
test images of the authors' model, each in a process of one thread with constants that it fitted by itself
(kept under build/). They take turns, chunk by chunk, so that other work on the machine slows both; processor
time is compared, and so are the answers. Prints a row for each eps and one for radii; exit code 1 if a target
is missed or an answer is not that of the earlier version.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 64  # as many as the certifier takes together
EPS = (0.0005, 0.002, 2 / 255, 0.02)
WANTED = {"eps": 5.0, "radii": 1.5}
SAME = 1e-6  # relative, of radii


def serve(data: Path, constants: Path) -> None:
    """Certify what each line of the standard input asks for, with the version that is imported here."""
    import torch

    from mlayer.certificates import Certifier
    from mlayer.files import load_authors_model

    torch.set_num_threads(1)
    layer = load_authors_model(data / "cifar10_model.npy", dtype=torch.float64)

    def images(name: str, rows: int | None = None) -> tuple[Any, Any]:
        raw = np.fromfile(data / "cifar-10-batches-bin" / name, np.uint8).reshape(-1, 3073)[:rows]
        pixels = raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).reshape(-1, 3072)
        return torch.from_numpy(pixels / 255.0), torch.from_numpy(raw[:, 0].astype(np.int64))

    x, y = images("test_batch.bin")
    if constants.exists():
        certifier = Certifier(layer, constants=constants)
    else:
        certifier = Certifier(layer, references=images("data_batch_1.bin", 64)[0], fit_steps=500)
        certifier.save(constants)
    with torch.no_grad():
        correct = np.flatnonzero((layer(x).argmax(1) == y).numpy())
    print(json.dumps(correct.tolist()), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        part, eps = request["images"], request["eps"]
        start = time.process_time()
        found = certifier(x[part], y[part], eps=eps)
        spent = time.process_time() - start
        answers = [bool(k) for k in found.radius >= eps] if eps is not None else found.radius.tolist()
        print(json.dumps({"seconds": spent, "answers": answers, "methods": found.method}), flush=True)


class Version:
    """The process of one version.

    Args:
        checkout: its folder.
        data: of the model and the images.
        build: where constants are kept.
    """

    def __init__(self, checkout: Path, data: Path, build: Path) -> None:
        name = hashlib.sha256(str(checkout.resolve()).encode()).hexdigest()[:12]
        command = [sys.executable, __file__, str(data), "--serve", str(build / f"constants-{name}.npz")]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        path = {"PYTHONPATH": str(checkout.resolve() / "src")}
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **threads, **path},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.correct: list[int] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a version's process ended; its message is above")
        return json.loads(line)

    def certify(self, images: list[int], eps: float | None) -> dict[str, Any]:
        """Processor seconds, answers and methods of some images."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"images": images, "eps": eps}) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = self._answer()
        return found

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def compare(versions: list[Version], order: list[int], eps: float | None) -> dict[str, Any]:
    """Processor seconds of each version, and how far their answers are apart."""
    seconds, answers = [0.0, 0.0], [[], []]  # type: tuple[list[float], list[list[Any]]]
    for begin in range(0, len(order), CHUNK):
        for k, version in enumerate(versions):
            found = version.certify(order[begin : begin + CHUNK], eps)
            seconds[k] += found["seconds"]
            answers[k] += found["answers"]
    old, new = map(np.array, answers)
    apart: dict[str, float]
    if eps is not None:
        lost, gained = int((old & ~new).sum()), int((new & ~old).sum())
        apart = {"certified": int(new.sum()), "lost": lost, "gained": gained}
    else:
        change = new / np.maximum(old, 1e-300) - 1
        apart = {"median": float(np.median(new)), "largest_loss": float(max(-change.min(), 0.0))}
        apart |= {"largest_gain": float(max(change.max(), 0.0)), "other": int((np.abs(change) > SAME).sum())}
    return {"eps": eps, "seconds": seconds, "ratio": seconds[0] / seconds[1], **apart}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("old", type=Path, nargs="?", help="a checkout of the earlier version")
    parser.add_argument("--images", type=int, default=60, help="how many of the correctly classified images")
    parser.add_argument("--eps", type=float, nargs="*", default=EPS, help="0.0005, 0.002, 2/255 and 0.02")
    parser.add_argument("--no-radii", action="store_true")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.data, options.serve)
        return 0
    if options.old is None or not (options.old / "src" / "mlayer").is_dir():
        parser.error("OLD must be a checkout of this repository: git worktree add OLD COMMIT")
    here = Path(__file__).resolve().parent.parent
    build = here / "build"
    build.mkdir(exist_ok=True)
    versions = [Version(checkout, options.data, build) for checkout in (options.old, here)]
    if versions[0].correct != versions[1].correct:
        raise SystemExit("the two versions classify different images correctly")
    order = np.random.default_rng(0).permutation(versions[1].correct)[: options.images].tolist()
    for version in versions:
        version.certify(order[:1], None)  # loads what is loaded once
    met = True
    for eps in [*options.eps, *([] if options.no_radii else [None])]:
        found = compare(versions, order, eps)
        wanted = WANTED["radii" if eps is None else "eps"]
        met = met and found["ratio"] >= wanted and not found.get("lost") and not found.get("other")
        print(json.dumps(found), f"wanted {wanted:g}", flush=True)
    for version in versions:
        version.close()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
