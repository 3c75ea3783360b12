"""Every reader of files and formulas, with files that it accepts: what the fuzzers start from."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

import mlayer
from mlayer.certificates import Certifier
from mlayer.certificates.checker import ProofError, file_digest, read_proof
from mlayer.datasets import temperatures
from mlayer.datasets.cifar10_binary import read_batch
from mlayer.datasets.mnist_idx import read_idx
from mlayer.datasets.svhn_mat import _split
from mlayer.errors import MLayerError
from mlayer.experiments.running.records import read_part, write_part
from mlayer.files import load_authors_model, load_keras_npz
from mlayer.files.authors import LAYOUT
from mlayer.files.network_file import load_network, save_network
from mlayer.files.store import _digest, load_with_notes
from mlayer.tables import open_table
from mlayer.tensorfile import digest_of
from mlayer.training import CheckpointWarning, Settings, train


@dataclass(frozen=True)
class Reader:
    """Attributes:
    name: of the file that is read.
    seeds: makes files that are accepted.
    read: the content of a file, comparable.
    sealed: every byte counts: a changed file is refused, or has the content of the file before.
    reseal: makes the digest of a changed file right again, as a forger would; None if it has none, or the
        changed file no place for one.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], Any]
    sealed: bool = False
    reseal: Callable[[bytes], bytes | None] | None = None


def written(write: Callable[[Path], object]) -> bytes:
    """The bytes that a function writes to a path."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        write(file)
        (found,) = Path(folder).iterdir()
        return found.read_bytes()


def layer(**options: Any) -> mlayer.MLayer:
    generator = torch.Generator().manual_seed(0)
    return mlayer.MLayer(3, 2, 3, **({"embedding_size": 2} | options), generator=generator)


# ---- Models. ------------------------------------------------------------------------------------------


def models() -> list[bytes]:
    made = [layer(), layer(structure="nilpotent", embedding_size=None), layer(dtype=torch.float64)]
    notes = {"units": ["m", "s"], "deep": [[1, [2, {"a": None}]]]}
    return [written(partial(mlayer.save, one)) for one in made] + [
        written(lambda f: mlayer.save(layer(), f, notes=notes))
    ]


def read_model(path: Path) -> Any:
    one, notes = load_with_notes(path)
    return digest_of(one.state_dict()), json.dumps(notes, sort_keys=True), str(one)


def reseal_model(data: bytes) -> bytes | None:
    """The file with the digest of the configuration, notes and tensors that it now has."""
    from safetensors.torch import load, save

    try:
        end = 8 + int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8:end])["__metadata__"]
        header, tensors = json.loads(metadata["mlayer"]), load(data)
        header["digest"] = _digest(header["config"], tensors, header.get("notes"))
        return save(tensors, {"mlayer": json.dumps(header)})
    except Exception:
        return None


def networks() -> list[bytes]:
    generator = torch.Generator().manual_seed(0)
    front = [torch.nn.Conv2d(1, 2, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(2, 3)]
    with torch.no_grad():
        for parameter in torch.nn.Sequential(*front).parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    both = torch.nn.Sequential(*front, layer()), torch.nn.Sequential(*front)
    return [written(partial(save_network, one, notes={"eps": 0.1})) for one in both]


def read_network(path: Path) -> Any:
    one, notes = load_network(path)
    return digest_of(one.state_dict()), json.dumps(notes, sort_keys=True), str(one)


# ---- Checkpoints. -------------------------------------------------------------------------------------


def training(folder: Path) -> mlayer.MLayer:
    model = layer()
    x = torch.linspace(0, 1, 24).reshape(8, 3)
    settings = Settings(epochs=1, batch_size=4, optimizer="adam", learning_rate=1e-2)
    train(model, (x, x[:, :2]), settings, checkpoint=folder)
    return model


@cache
def checkpoints() -> tuple[bytes, ...]:
    with TemporaryDirectory() as folder:
        training(Path(folder))
        return ((Path(folder) / "state.safetensors").read_bytes(),)


def read_checkpoint(path: Path) -> Any:
    """The weights with which the run ends that takes the checkpoint up."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "state.safetensors").write_bytes(path.read_bytes())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            return digest_of(training(Path(folder)).state_dict())


def reseal_checkpoint(data: bytes) -> bytes | None:
    mark = b'"digest":"'
    place = data.find(mark)
    if place < 0 or len(data) < place + len(mark) + 64:
        return None
    place += len(mark)
    zeroed = data[:place] + b"0" * 64 + data[place + 64 :]
    return data[:place] + hashlib.sha256(zeroed).hexdigest().encode() + data[place + 64 :]


# ---- Certificates. ------------------------------------------------------------------------------------


@cache
def certifier() -> Certifier:
    return Certifier(layer(dtype=torch.float64), fit_steps=5)


def read_constants(path: Path) -> Any:
    found = Certifier(layer(dtype=torch.float64), constants=path)
    x = torch.full((1, 3), 0.2, dtype=torch.float64)
    return float(found(x, layer(dtype=torch.float64)(x).argmax(1)).radius)


def reseal_constants(data: bytes) -> bytes | None:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        hasher = hashlib.sha256(str(arrays["belongs_to"]).encode())
        for name in ("w", "P", "P_inverse", "Y"):
            array = np.ascontiguousarray(arrays[name])
            hasher.update(f"{name} {array.dtype} {array.shape}\n".encode())
            hasher.update(array.tobytes())
        arrays["digest"] = np.array(hasher.hexdigest())
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        return buffer.getvalue()
    except Exception:
        return None


def proofs() -> list[bytes]:
    one = layer(dtype=torch.float64)
    x = torch.full((2, 3), 0.1, dtype=torch.float64)
    proof = mlayer.certify(one, x, one(x).argmax(1), rigorous=True, proof=True).proof
    assert proof is not None
    return [written(proof.save)]


def read_a_proof(path: Path) -> Any:
    return json.dumps(read_proof(path), sort_keys=True)


def reseal_proof(data: bytes) -> bytes | None:
    try:
        end = 8 + int.from_bytes(data[:8], "little")
        old = json.loads(data[8:end])["__metadata__"]["sha256"]
        place = data.index(old.encode())
        return data[:place] + file_digest(data, old).encode() + data[place + 64 :]
    except Exception:
        return None


def parts() -> list[bytes]:
    """Results of finished parts of an experiment, as they lie in the folder "run"."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run" / "part.json"
        write_part(file, {"rows": [0.1, 2, None], "seconds": 1.5, "name": "Zürich", "commit": None})
        return [file.read_bytes()]


def read_a_part(path: Path) -> Any:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run" / "part.json"
        file.parent.mkdir()
        file.write_bytes(path.read_bytes())
        return json.dumps(read_part(file), sort_keys=True)


def reseal_part(data: bytes) -> bytes | None:
    try:
        found = json.loads(data)
        text = json.dumps(found["record"], sort_keys=True)
        found["sealed"]["digest"] = hashlib.sha256(text.encode()).hexdigest()
        return json.dumps(found).encode()
    except Exception:
        return None


# ---- Tables. ------------------------------------------------------------------------------------------


def frame() -> pd.DataFrame:
    words = ["Rome", "Oslo", "Zürich", None] * 5
    days = pd.date_range("2020-01-01", periods=20)
    return pd.DataFrame({"n": np.arange(20) / 7, "w": words, "day": days, "yes": [True, False] * 10})


def texts() -> list[bytes]:
    text = frame().to_csv(index=False)
    return [
        text.encode(),
        text.replace(",", ";").encode(),
        text.encode("utf-16"),
        b'a,b\n"x ""y"" z",1\n"two\nlines",2\n',
    ]


def parquets() -> list[bytes]:
    return [
        written(lambda f: frame().to_parquet(f)),
        written(lambda f: frame().to_parquet(f, compression="gzip")),
    ]


def read_table(path: Path) -> Any:
    return open_table(path).read().to_csv()


# ---- Weights of the authors. --------------------------------------------------------------------------


def vectors() -> list[bytes]:
    total = sum(math.prod(shape) for shape in LAYOUT.values())
    return [written(lambda f: np.save(f, np.zeros(total, np.float16)))]


def dumps() -> list[bytes]:
    draw = np.random.default_rng(0)
    arrays = {
        "m/rep_to_exp_tensor:0": draw.normal(size=(2, 3, 3)),
        "m/matrix_bias:0": draw.normal(size=(1, 9)),
        "in/kernel:0": draw.normal(size=(4, 2)),
        "in/bias:0": draw.normal(size=2),
        "out/kernel:0": draw.normal(size=(9, 5)),
        "out/bias:0": draw.normal(size=5),
    }
    return [
        written(lambda f: np.savez(f, **arrays)),  # type: ignore[arg-type]
        written(lambda f: np.savez_compressed(f, **arrays)),  # type: ignore[arg-type]
    ]


def reseal_zip(data: bytes) -> bytes | None:
    """Members as they are now, with checksums that fit."""
    try:
        buffer = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
            for info in old.infolist():
                start = info.header_offset + 30 + len(info.filename.encode())
                new.writestr(info.filename, data[start : start + min(info.compress_size, 10**6)])
        return buffer.getvalue()
    except Exception:
        return None


def weights(one: mlayer.MLayer) -> str:
    return digest_of(one.state_dict())


# ---- Data sets. ---------------------------------------------------------------------------------------


def idx_files() -> list[bytes]:
    head = bytes((0, 0, 8, 3)) + b"".join(n.to_bytes(4, "big") for n in (2, 3, 4))
    return [head + bytes(range(24)), gzip.compress(head + bytes(range(24)))]


def mat_files() -> list[bytes]:
    import scipy.io

    arrays = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[10], [3]], np.uint8)}
    return [
        written(lambda f: scipy.io.savemat(f, arrays, appendmat=False)),
        written(lambda f: scipy.io.savemat(f, arrays, appendmat=False, do_compression=True)),
    ]


def read_temperatures(path: Path) -> Any:
    with TemporaryDirectory() as folder:
        (Path(folder) / "daily-min-temperatures.csv").write_bytes(path.read_bytes())
        return temperatures(folder, verify=False).dates


READERS = {
    "model": Reader("m.safetensors", models, read_model, sealed=True, reseal=reseal_model),
    "network": Reader("n.safetensors", networks, read_network, sealed=True, reseal=reseal_checkpoint),
    "checkpoint": Reader(
        "s.safetensors", lambda: list(checkpoints()), read_checkpoint, sealed=True, reseal=reseal_checkpoint
    ),
    "constants": Reader(
        "c.npz", lambda: [written(certifier().save)], read_constants, sealed=True, reseal=reseal_constants
    ),
    "proof": Reader("p.safetensors", proofs, read_a_proof, sealed=True, reseal=reseal_proof),
    "part": Reader("p.json", parts, read_a_part, sealed=True, reseal=reseal_part),
    "csv": Reader("t.csv", texts, read_table),
    "csv.gz": Reader("t.csv.gz", lambda: [gzip.compress(text) for text in texts()], read_table),
    "parquet": Reader("t.parquet", parquets, read_table),
    "authors' .npy": Reader("a.npy", vectors, lambda path: weights(load_authors_model(path, verify=False))),
    "Keras .npz": Reader("k.npz", dumps, lambda path: weights(load_keras_npz(path)), reseal=reseal_zip),
    "idx": Reader("i.gz", idx_files, lambda path: read_idx(path, 3).tobytes()),
    "cifar": Reader("b.bin", lambda: [bytes(3073) * 2], lambda path: read_batch(path).tobytes()),
    "mat": Reader("m.mat", mat_files, lambda path: _split(path).labels.tolist()),
    "temperatures": Reader(
        "d.csv", lambda: [b"Date,Temp\n1981-01-01,2\n1981-01-02,3.5\n"], read_temperatures
    ),
}
ERRORS = (MLayerError, ProofError)
