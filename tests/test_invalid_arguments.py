"""Public functions called wrongly: each complaint names the argument, what it must be, what it was, what to
do.

The rooms have tests of their own for what only they check; here is what the shared checks give to all.
Estimators, tables, pages and experiments: test_invalid_arguments_tables.py.
"""

from __future__ import annotations

import math
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mlayer
from invalid_arguments import Call, Cases, names_of, says_what_is_wrong
from mlayer import datasets, files, nn, symbolic, tables, training
from mlayer.errors import MLayerError
from mlayer.nn import gauge, lie, spectrum
from mlayer.nn.structures.named import STRUCTURES

LAYER = mlayer.MLayer(3, 2, matrix_size=4, embedding_size=5)
EYE = torch.eye(3)
XY = (torch.ones(8, 3), torch.ones(8, 2))


class Unwritable(str):
    """A name that cannot be shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError


UNWRITABLE = Unwritable("x")


def settings(**wrong: Any) -> Call:
    return lambda: training.Settings(**wrong)


def layer(**wrong: Any) -> Call:
    return lambda: mlayer.MLayer(3, 2, **wrong)


def train(**wrong: Any) -> Call:
    quick = training.Settings(epochs=1)
    return lambda: training.train(mlayer.MLayer(3, 2, 3), XY, wrong.pop("settings", quick), **wrong)


def many(**wrong: Any) -> Call:
    given: dict[str, Any] = {
        "build": lambda _: mlayer.MLayer(3, 2, 3),
        "data": XY,
        "settings": training.Settings(epochs=1),
        "seeds": [0],
    }
    return lambda: training.train_many(**(given | wrong))


ROWS = np.random.default_rng(0).uniform(-1, 1, (30, 2))
CLASSES = (ROWS[:, 0] > 0).astype(int)
PAIR = np.array([3, 4])  # compared with a word it gives an array, whose truth is no question


CASES: Cases = [
    (
        train(augment=lambda x, g: None),
        "augment must be a function that returns a tensor; got one that returns",
    ),
    # Names: the nearest is suggested.
    (
        layer(structure="nilpotant"),
        f"structure must be one of {', '.join(map(repr, list(STRUCTURES)[:4]))}, ",
    ),
    (layer(structure="nilpotant"), "got 'nilpotant'. Did you mean 'nilpotent'?"),
    (layer(init="balancd"), "got 'balancd'. Did you mean 'balanced'?"),
    (lambda: LAYER.activity(XY[0], "Frobenius"), "got 'Frobenius'. Did you mean 'frobenius'?"),  # type: ignore[arg-type]
    (settings(loss="squared_eror"), "Did you mean 'squared_error'?"),
    (settings(optimizer="adamm"), "Did you mean 'adam'?"),
    (settings(metrics=("acuracy",)), "Did you mean 'accuracy'?"),
    (settings(monitor="accurcy"), "Did you mean 'accuracy'?"),
    (settings(on_divergence="rais"), "Did you mean 'raise'?"),
    (settings(activity_kind="frobenus"), "Did you mean 'frobenius'?"),
    (lambda: datasets.images("mnst"), "Did you mean 'mnist'?"),
    (lambda: mlayer.to_sympy(LAYER, method="tailor"), "Did you mean 'taylor'?"),
    (lambda: tables.Plan("y", task="clasification"), "Did you mean 'classification'?"),
    (lambda: mlayer.MLayerRegressor(solver="lbfg").fit(*XY), "Did you mean 'lbfgs'?"),
    (lambda: mlayer.MLayerRegressor(penalty="weight").fit(*XY), "Did you mean 'weights'?"),
    # The layer and its views.
    (layer(matrix_bias=torch.ones(4, 4)), "matrix_bias must be True or False; got of type Tensor"),
    (layer(output_bias=1), "output_bias must be True or False; got 1"),
    (
        layer(init=nn.Normal),
        "init must be a name or a callable (layer, generator); got the class Normal. Make",
    ),
    (layer(structure=nn.Skew), "got the class Skew. Make one: Skew(...)."),
    (layer(generator=0), "generator must be a torch.Generator or None; got 0. Use torch.Generator().manual"),
    (layer(device="cud"), "device must be a torch.device of this machine, or its name; got 'cud'"),
    (
        layer(dtype="float32"),
        "dtype must be a real floating point torch.dtype of 16, 32 or 64 bits; got 'float32'",
    ),
    *(
        (layer(**{name: UNWRITABLE}), f"{name} must be one of")
        for name in ("on_overflow", "init", "structure")
    ),
    (
        layer(dtype=[]),
        "dtype must be a real floating point torch.dtype of 16, 32 or 64 bits; got of type list",
    ),
    (lambda: LAYER(torch.ones(1, 3, device="meta")), "x must be on the device of the layer, cpu; got meta"),
    (lambda: nn.BlockDiagonal(3), "blocks must be positive integers; got 3"),  # type: ignore[arg-type]
    (lambda: nn.Skew(2.5), "size must be a positive integer; got float"),  # type: ignore[arg-type]
    (lambda: nn.Nilpotent(0), "size must be a positive integer; got 0"),
    (lambda: nn.Parametrized(int, 3), "module must be a torch.nn.Module; got the class int"),  # type: ignore[arg-type]
    (lambda: nn.Skew(3).free(torch.eye(4)), "matrices must be a tensor (..., 3, 3); got shape (4, 4)"),
    (lambda: nn.activity_of(torch.ones(3)), "exponentials must be a square matrix or a batch of them"),
    (lambda: nn.watch_activity(3).__enter__(), "model must be a torch.nn.Module; got 3"),  # type: ignore[arg-type]
    (lambda: mlayer.expm_path(3), "matrices must be a torch.Tensor; got int"),  # type: ignore[arg-type]
    (lambda: mlayer.expm_path(torch.ones(())), "matrices must be a square matrix"),
    (lambda: nn.evolve(EYE, 1.0, torch.ones(4)), "start must be a tensor of shape (3,); got shape (4,)"),
    (lambda: nn.trajectory(torch.ones(3, 4), 1.0), "matrices must be a square matrix"),
    (lambda: gauge.canonical("layer"), "layer must be an MLayer; got str"),  # type: ignore[arg-type]
    (lambda: gauge.transform(LAYER, matrix=[1.0]), "matrix must be a torch.Tensor; got list"),  # type: ignore[arg-type]
    (lambda: lie.bracket(EYE, torch.eye(4)), "b must be of the size of a, 3; got 4"),
    (lambda: lie.lie_algebra([EYE]), "matrices must be a torch.Tensor; got list"),  # type: ignore[arg-type]
    (lambda: lie.summary(LAYER, "small"), "tolerance must be a number between 0 and 1; got 'small'"),  # type: ignore[arg-type]
    (lambda: lie.brackets(3), "layer must be an MLayer; got int"),  # type: ignore[arg-type]
    (lambda: spectrum.eigenvalues(LAYER, [1.0]), "x must be a torch.Tensor; got list"),  # type: ignore[arg-type]
    (lambda: spectrum.modes(3, EYE[0]), "layer must be an MLayer; got int"),  # type: ignore[arg-type]
    # Training.
    (
        settings(optimizer="SparseAdam"),
        "optimizer must be one for dense gradients; got SparseAdam. Use 'adam'",
    ),
    (
        settings(metrics="accuracy"),
        "metrics must be a tuple of names; got 'accuracy'. For example (\"accuracy\",)",
    ),
    (settings(metrics=3), "metrics must be a tuple of names; got 3"),
    # Lists that no memory holds, or that never end.
    (settings(metrics=range(10**12)), "metrics must be a tuple of names, at most 1000000; got more"),
    (settings(metrics=repeat("rmse")), "metrics must be a tuple of names, at most 1000000; got more"),
    (many(seeds=count()), "seeds must be several integers, at most 1000000; got more"),
    (lambda: nn.BlockDiagonal(repeat(1)), "blocks must be positive integers, at most 1000000; got more"),  # type: ignore[arg-type]
    (lambda: tables.Plan("y", drop=count()), "drop must be several names of columns, at most 1000000; got"),  # type: ignore[arg-type]
    (lambda: datasets.fetch_sets(repeat("mnist")), "names must be several names, at most 1000000; got more"),
    (
        lambda: mlayer.MLayerRegressor(periodic=count()).fit(*XY),  # type: ignore[arg-type]
        "periodic must be True, False, 'auto' or numbers of inputs, at most 1000000; got more",
    ),
    (settings(monitor=3), "monitor must be a name; got 3"),
    (settings(restore_best="yes"), "restore_best must be True or False; got 'yes'"),
    (settings(optimizer_options=[1]), "optimizer_options must be a dict; got of type list"),
    (lambda: training.Plateau(factor="x"), "factor must be a number between 0 and 1; got 'x'"),  # type: ignore[arg-type]
    (train(settings=training.Settings(optimizer=torch.optim.SparseAdam)), "optimizer must be one for dense"),
    (
        train(settings=training.Settings(optimizer="sgd", optimizer_options={"momentum": -1.0})),
        "optimizer must be one that can be built for this model with these options; got SGD with",
    ),
    (train(progress=None), "progress must be True, False or a Progress; got None"),
    (train(checkpoint=3), "checkpoint must be a path; got 3"),
    (train(augment=3), "augment must be a callable (x, generator) -> x, or None; got 3"),
    (train(on_epoch="print"), "on_epoch must be a callable (record), or None; got 'print'"),
    (train(validation=[["x"]]), "validation must be a loader of batches (x, y) or (x, y, weight)"),
    (lambda: training.evaluate(3, XY, training.Settings()), "model must be a torch.nn.Module"),  # type: ignore[arg-type]
    (lambda: training.evaluate(LAYER, XY, None), "settings must be a Settings; got NoneType"),  # type: ignore[arg-type]
    (many(build=None), "build must be a callable (settings) -> model; got None"),
    (many(seeds=3), "seeds must be several integers; got 3. For example seeds=range(5)"),
    (many(n_jobs=0), "n_jobs must be a number of processes, -1 or None; got 0"),
    (many(validation="no"), "validation must be tensors (x, y) or (x, y, weight), or None; got str"),
    (many(on_done=3), "on_done must be a callable (trained), or None; got 3"),
    (many(settings=3, seeds=None), "settings must be a Settings, or several"),
    # Formulas.
    (
        lambda: mlayer.from_polynomial(torch.ones(2, 2), "x"),
        "expressions must be sympy expressions, strings or numbers",
    ),
    (lambda: mlayer.from_polynomial("x", torch.tensor(1)), "variables must be a list of symbols or names"),
    (
        lambda: mlayer.from_polynomial("x", torch.empty(1, device="meta")),
        "variables must be a list of symbols or names; got Cannot copy",
    ),
    (lambda: mlayer.from_polynomial("x", "x", largest=0), "largest must be a positive integer; got 0"),
    (lambda: mlayer.from_boolean("x", "x", largest="9"), "largest must be a positive integer; got str"),  # type: ignore[arg-type]
    (
        lambda: mlayer.from_boolean({"a": 1}, "x"),
        "expressions must be a function with values 0 and 1; got 'a'",
    ),
    (lambda: mlayer.from_boolean([XY[0]], "x y z"), "callables or truth tables; got Tensor"),
    (
        lambda: mlayer.from_function(lambda x: None, (0, 1), 0.1),
        "f must be a function that returns real numbers; got",
    ),
    (lambda: symbolic.determinant(2, dtype="float"), "dtype must be a real floating point torch.dtype"),  # type: ignore[arg-type]
    (lambda: symbolic.rotation(1.0, dtype=torch.int64), "dtype must be a real floating point torch.dtype"),
    (
        lambda: symbolic.sum_of_cosines(1.0, [1.0]),  # type: ignore[arg-type]
        "amplitudes must be a list of several numbers, a tuple or a 1-d array; got 1.0",
    ),
    (
        lambda: symbolic.rigid_body_rotation(3),  # type: ignore[arg-type]
        "start must be a list of several numbers, a tuple or a 1-d array; got 3",
    ),
    (lambda: symbolic.draw_board("x*y"), "board must be a PolynomialPlan or an MLayer; got 'x*y'"),  # type: ignore[arg-type]
    (
        lambda: mlayer.explain(LAYER, "points"),
        "data must be points as numbers, or a pair (points, targets); got",
    ),
    (lambda: mlayer.to_sympy(LAYER, tolerance=2), "tolerance must be between 0 and 1; got 2"),
    (lambda: mlayer.to_sympy(LAYER, factor=1), "factor must be True or False; got 1"),  # type: ignore[arg-type]
    # Data sets and tables.
    (lambda: datasets.spirals(noise=math.nan), "noise must be a finite number at least 0; got nan"),
    # Integers beyond the range of floats.
    (lambda: datasets.spirals(noise=10**400), "noise must be a finite number at least 0; got 1000"),
    (
        lambda: mlayer.certify(LAYER, XY[0], torch.zeros(8).long(), eps=10**400),
        "eps must be finite and not negative; got 10",
    ),
    (
        lambda: mlayer.attack(LAYER, XY[0], torch.zeros(8).long(), eps=-(10**5000)),
        "eps must be finite and not negative; got",
    ),
    (lambda: datasets.permanent(EYE), "matrices must be a tensor (N, n, n); got shape (3, 3)"),
    (lambda: datasets.digits().train.images(3), "index must be a vector of row numbers or a slice; got 3"),  # type: ignore[arg-type]
    # torch reads these as a mask.
    (
        lambda: datasets.digits().train.images(torch.tensor([1, 2], dtype=torch.uint8)),
        "index must be a vector of row numbers or a slice; got torch.uint8, shape (2,)",
    ),
    (lambda: tables.open_table(3), "path must be a path; got 3"),  # type: ignore[arg-type]
    (lambda: tables.learn_schema("t.csv"), "frame must be a pandas DataFrame; got 't.csv'. Read a file with"),
    (lambda: tables.guess_task([1, 2]), "series must be a pandas Series; got of type list"),
    (lambda: tables.fit_table(None, tables.Plan("y")), "frame must be a pandas DataFrame; got None"),
    (
        lambda: tables.Plan("y", drop="id"),  # type: ignore[arg-type]
        "drop must be several names of columns; got 'id'. For example (\"id\",)",
    ),
    (lambda: tables.Plan("y", seed=-1), "seed must be an integer of at least 0; got -1"),
    (lambda: tables.Plan("y", training={}), "training must be a Training; got of type dict"),  # type: ignore[arg-type]
    (lambda: tables.Training(epochs=0), "epochs must be an integer of at least 1; got 0"),
    (lambda: tables.Training(time_limit=math.inf), "time_limit must be a finite number above 0; got inf"),
    (lambda: tables.predict_table(LAYER, 3, 3), "model must be a TableModel; got of type MLayer"),  # type: ignore[arg-type]
    # Files.
    (lambda: mlayer.save(LAYER, 3), "path must be a path; got 3. Give a string or a pathlib.Path"),  # type: ignore[arg-type]
    (lambda: mlayer.load(None), "path must be a path; got None"),  # type: ignore[arg-type]
    (lambda: files.load_authors_model(3), "path must be a path; got 3"),  # type: ignore[arg-type]
    (lambda: mlayer.export_onnx(LAYER, "m.onnx", input_name=3), "input_name must be a name; got 3"),  # type: ignore[arg-type]
    (lambda: mlayer.export_onnx(LAYER, "m.onnx", output_name="\ud800"), "output_name must be a name; got "),
    (lambda: mlayer.export_onnx(LAYER, "m.onnx", metadata={"a": "\ud800"}), "metadata must be texts by name"),
    (lambda: mlayer.export_onnx(LAYER, "m.onnx", metadata={1: "a"}), "metadata must be texts by name"),  # type: ignore[dict-item]
    (lambda: mlayer.export_onnx(LAYER, "m.onnx", metadata="ab"), "metadata must be texts by name"),  # type: ignore[arg-type]
    (
        lambda: mlayer.export_onnx(LAYER, "m.onnx", output_name="x"),
        "output_name must be different from input_name",
    ),
    # Sizes without room, structures, spectra.
    (layer(matrix_size=10**30), "matrix_size must be a positive integer; got 1000"),
    (lambda: mlayer.MLayer(3, 2, 10**9), "embedding_size, in_features and out_features must be sizes whose"),
    (layer(init=lambda layer: None), "init must be a name or a callable (layer, generator); got function"),
    (layer(device=10**30), "device must be a torch.device of this machine, or its name; got 1000"),
    (lambda: nn.Normal("small"), "std must be a number at least 0; got 'small'"),  # type: ignore[arg-type]
    (lambda: nn.Balanced(math.nan), "norm must be a finite number at least 0; got nan"),
    (lambda: nn.Notebook(-1.0), "limit must be a finite number at least 0; got -1.0"),
    (lambda: nn.Periodic(diagonal=math.inf), "diagonal must be a finite number; got inf"),
    (lambda: nn.BlockDiagonal(np.array(3)), "blocks must be positive integers; got of type ndarray"),  # type: ignore[arg-type]
    (lambda: nn.Skew(3)(torch.ones(2)), "free must be a tensor (..., 3); got shape (2,). `free` makes it"),
    (lambda: nn.Skew(3)(None), "free must be a tensor (..., 3); got None"),
    (
        lambda: spectrum.eigenvalues(LAYER, torch.full((1, 3), math.nan)),
        "x must be finite, and so M(x); got an input at which M(x) is infinite or NaN",
    ),
    (
        lambda: nn.trajectory(EYE, torch.ones(2, device="meta")),
        "t must be times with values; got a tensor on meta",
    ),
    # Training and data sets.
    (settings(metrics=np.array(3)), "metrics must be a tuple of names; got of type ndarray"),
    (settings(epochs=np.int64(3)), "epochs must be an integer of at least 0; got np.int64(3). Give int(ep"),
    (settings(seed=2**70), "Give one below 2**63"),
    (train(augment=lambda x: x), "augment must be a callable (x, generator) -> x, or None; got one that"),
    (train(validation=np.array(3)), "validation must be tensors (x, y), (x, y, weight), or a data loader"),
    (train(validation=[(1, 2)]), "validation must be a loader of batches (x, y) or (x, y, weight)"),
    (
        train(validation=tuple(t.to("meta") for t in XY)),
        "validation must be dense tensors with values; got sparse ones or ones on meta",
    ),
    (many(seeds=np.array(3)), "seeds must be several integers; got of type ndarray"),
    (many(data=[[1], [2, 3]]), "data must be tensors (x, y) or (x, y, weight); got list"),
    (many(n_jobs=10**30), "n_jobs must be a number of processes, -1 or None; got 1000"),
    (lambda: training.Bar(console="terminal"), "console must be a rich.console.Console or None; got 'term"),
    (lambda: datasets.spirals(seed=-1), "seed must be an integer from 0 to 2**63 - 1; got -1"),
    (lambda: datasets.spirals(count=2 * 10**30), "count must be a positive integer; got 2000"),
    (lambda: datasets.Cosines(1.0, (1, 2), (0.0, 0.0)), "amplitudes must be a tuple of two numbers; got 1"),  # type: ignore[arg-type]
    (lambda: datasets.cosine_samples(lambda x: x), "function must be a Cosines; got of type function"),  # type: ignore[arg-type]
    (
        lambda: datasets.cosine_samples(datasets.FIGURE_COSINES[0], noise="some"),  # type: ignore[arg-type]
        "noise must be a number at least 0; got 'some'",
    ),
    (
        lambda: datasets.cosine_samples(datasets.FIGURE_COSINES[0], stop=math.inf),
        "stop must be a finite number; got inf",
    ),
    (
        lambda: datasets.cosine_samples(datasets.FIGURE_COSINES[0], stop=-1.0),
        "spacing and stop must be a stop after the start, and fewer than 1e9 points",
    ),
    (lambda: datasets.mnist(download="no"), "download must be True or False; got 'no'"),  # type: ignore[arg-type]
    (lambda: datasets.svhn(verify=PAIR), "verify must be True or False; got of type ndarray"),  # type: ignore[arg-type]
    (
        lambda: datasets.cifar10(progress=3),  # type: ignore[arg-type]
        "progress must be a callable (name, bytes, total bytes), or None",
    ),
    (
        lambda: datasets.fetch_sets("mnist"),
        "names must be several names; got 'mnist'. For example [\"mnist\"]",
    ),
    (lambda: datasets.digits().train.images(flat=1), "flat must be True or False; got 1"),  # type: ignore[arg-type]
    (
        lambda: datasets.digits().train.take(torch.tensor([10**6])),
        "index must be of the 1437 rows; got rows outside that range. They are 0 to 1436",
    ),
    # Formulas.
    (lambda: mlayer.from_boolean(lambda a: a, "a b"), "expressions must be a function of the 2 variables"),
    (lambda: mlayer.from_boolean(np.array(3), "a b"), "expressions must be strings, sympy logic, callables"),
    (
        lambda: mlayer.from_function(torch.nn.Linear(1, 1), (0, 1), 0.1),
        "f must be a function of many points at once, a float64 tensor (count, variables); got one that rai",
    ),
    (
        lambda: mlayer.to_sympy(LAYER, data=np.eye(8, 3), degree=10**30),
        "degree must be small enough for 3 inputs",
    ),
]


@pytest.mark.parametrize(("call", "words"), CASES, ids=names_of(CASES))
def test_says_what_is_wrong(call: Call, words: str) -> None:
    says_what_is_wrong(call, words)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(MLayerError, match=r"path must be a file; got the folder .*Name a file in it"):
        mlayer.save(LAYER, tmp_path)
    assert not list(tmp_path.iterdir())
    for read in (mlayer.load, files.load_authors_model, files.load_keras_npz):
        with pytest.raises(FileNotFoundError, match=r"no file .*, but a folder\. Check the path"):
            read(tmp_path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere for m.safetensors. Create it first\."):
        mlayer.save(LAYER, tmp_path / "nowhere" / "m.safetensors")
    mlayer.save(LAYER, tmp_path / "m.safetensors")
    with pytest.raises(FileNotFoundError, match=r"no file .*n.safetensors. There are: m.safetensors\."):
        mlayer.load(tmp_path / "n.safetensors")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        MLayerError, match=r"something else, or an incomplete file .*Models end in .safetensors\."
    ):
        mlayer.load(tmp_path / "table.csv")


def test_numbers_of_numpy_are_numbers() -> None:
    """Sizes often come from arrays: counts of labels, shapes, what a grid search tries."""
    sizes: Any = {"in_features": np.int64(3), "out_features": CLASSES.max() + 1, "matrix_size": np.int32(4)}
    layer = mlayer.MLayer(**sizes, embedding_size=None)
    assert (layer.in_features, layer.out_features, layer.matrix_size) == (3, 2, 4)
    assert type(layer.matrix_size) is int
    blocks: Any = PAIR
    assert nn.BlockDiagonal(blocks).config() == {"name": "block_diagonal", "blocks": [3, 4]}
    tried: Any = {"matrix_size": np.int64(3), "alpha": np.float32(0.5), "warm_start": np.bool_(False)}
    model = mlayer.MLayerClassifier(**tried, max_iter=2)
    assert model.set_params(early_stopping=np.bool_(True)).fit(ROWS, CLASSES).alpha_ == 0.5
