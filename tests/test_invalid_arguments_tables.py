"""Tables, estimators, pages and experiments called with invalid arguments. See test_invalid_arguments.py."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import mlayer
from invalid_arguments import Call, Cases, names_of, says_what_is_wrong
from mlayer import experiments, report, tables

ROWS = np.random.default_rng(0).uniform(-1, 1, (30, 2))
CLASSES = (ROWS[:, 0] > 0).astype(int)
PAIR = np.array([3, 4])  # compared with a word it gives an array, whose truth is no question
FRAME = pd.DataFrame({"a": range(12), "b": [0, 1, 2] * 4, "y": [0, 1] * 6})


def regressor(**wrong: Any) -> Call:
    return lambda: mlayer.MLayerRegressor(**wrong).fit(ROWS, ROWS[:, 0])


def classifier(*, fit: dict[str, Any] | None = None, **wrong: Any) -> Call:
    given = {"X": ROWS, "y": CLASSES} | (fit or {})
    return lambda: mlayer.MLayerClassifier(**wrong).fit(**given)


@cache
def fitted() -> tables.FitResult:
    return tables.fit_table(FRAME, tables.Plan("y", training=tables.Training(epochs=1)))


def page_of(**wrong: Any) -> Call:
    def call() -> None:
        given: dict[str, Any] = {"result": fitted(), "source": "t.csv", "model": "m.safetensors"}
        report.fit_page(**(given | wrong))

    return call


def reproduce(**wrong: Any) -> Call:
    return lambda: experiments.reproduce("spiral", **({"scale": "smoke"} | wrong))


def source(tmp: str = "x") -> tables.Source:
    return tables.Source(Path(tmp), ("a", "y"))


CASES: Cases = [
    # The estimators: arrays and the like where one value belongs.
    (regressor(matrix_size=PAIR), "matrix_size must be a positive integer or 'auto'; got of type ndarray"),
    (regressor(matrix_size="large"), "matrix_size must be a positive integer or 'auto'; got 'large'"),
    (regressor(matrix_size=10**30), "matrix_size must be a positive integer or 'auto'; got 1000"),
    (regressor(matrix_size=None), "matrix_size must be a positive integer or 'auto'; got None"),
    (regressor(embedding_size=PAIR), "embedding_size must be a positive integer, 'auto' or None; got of"),
    (regressor(embedding_size=True), "embedding_size must be a positive integer, 'auto' or None; got True"),
    (regressor(batch_size=FRAME), "batch_size must be a positive integer or 'auto'; got of type DataFrame"),
    (regressor(alpha=PAIR), "alpha must be a number of at least 0, or 'auto'; got of type ndarray"),
    (regressor(alpha=math.nan), "alpha must be a number of at least 0, or 'auto'; got nan"),
    (regressor(alpha=10**400), "alpha must be a number of at least 0, or 'auto'; got 1000"),
    (regressor(alpha=[0.1]), "alpha must be a number of at least 0, or 'auto'; got of type list"),
    (regressor(learning_rate=PAIR), "learning_rate must be a number above 0, or 'auto'; got of type"),
    (regressor(early_stopping=PAIR), "early_stopping must be True, False or 'auto'; got of type ndarray"),
    (
        regressor(periodic=FRAME),
        "periodic must be True, False, 'auto' or numbers of inputs; got of type DataFrame",
    ),
    (regressor(validation_fraction=PAIR), "validation_fraction must be a number of at least 0 and below 1"),
    (regressor(warm_start=torch.ones(2)), "warm_start must be True or False; got of type Tensor"),
    (regressor(warm_start="no"), "warm_start must be True or False; got 'no'"),
    (regressor(verbose=PAIR), "verbose must be True or False; got of type ndarray"),
    (regressor(random_state="zero"), "random_state must be None, an integer from 0 to 2**32 - 1 or a"),
    (regressor(random_state=-1), "numpy.random.RandomState; got -1. For example 0"),
    (regressor(random_state=np.random.default_rng(0)), "RandomState; got of type Generator"),
    (regressor(init=torch.nn.Linear(2, 2)), "init must be a name or a callable (layer, generator); got Lin"),
    (regressor(init=lambda layer: None), "init must be a name or a callable (layer, generator); got func"),
    (classifier(class_weight=PAIR), "class_weight must be None, 'balanced' or a dictionary from class to"),
    (classifier(class_weight="balancd"), "got 'balancd'. Did you mean 'balanced'?"),
    (classifier(class_weight={"a": 1}), "class_weight must be weights of the classes [0, 1]; got a dict"),
    (classifier(fit={"X": {"a": 1}}), "X and y must be numbers in an array or a table; got something else"),
    (
        classifier(fit={"X": pd.DataFrame({"a": ROWS[:, 0], "b": pd.Categorical(["u", "v"] * 15)})}),
        "X and y must be numbers; got text: 'u'. Encode text, such as by OneHotEncoder in a pipeline",
    ),
    (classifier(fit={"sample_weight": {1}}), "sample_weight must be numbers in an array or a table; got"),
    (
        lambda: mlayer.MLayerClassifier().partial_fit(ROWS, CLASSES, classes=[[0], [1, 2]]),
        "classes must be labels of one kind; got something else",
    ),
    (
        lambda: mlayer.MLayerClassifier().partial_fit(ROWS, CLASSES, classes=3),
        "classes must be several labels; got shape ()",
    ),
    # Tables.
    (lambda: tables.Plan("y", drop=np.array(3)), "drop must be several names of columns; got of type nda"),  # type: ignore[arg-type]
    (lambda: tables.Plan(PAIR), "target must be the name of a column; got of type ndarray"),  # type: ignore[arg-type]
    (lambda: tables.learn_schema(FRAME, drop=3), "drop must be several names of columns; got 3"),  # type: ignore[arg-type]
    (lambda: source().read(text=3), "text must be several names of columns; got 3"),  # type: ignore[arg-type]
    (lambda: source().read(1, verbatim="yy"), "verbatim must be a column of the table; got 'yy'. Did you"),
    (lambda: list(source().pieces(size=0)), "size must be an integer of at least 1; got 0"),
    (lambda: source().check_target(PAIR), "target must be the name of a column; got of type ndarray"),  # type: ignore[arg-type]
    (lambda: tables.read_with_target("t.csv", "y"), "source must be a Source; got 't.csv'. Open a file with"),  # type: ignore[arg-type]
    (lambda: tables.read_with_target(source(), "y", "regresion"), "Did you mean 'regression'?"),
    (
        lambda: tables.fit_table(tables.label(FRAME, "y"), tables.Plan("b")),
        "plan must be of the target and task of the rows, 'y' and 'classification'; got 'b' and 'auto'",
    ),
    (
        lambda: tables.fit_table(FRAME, tables.Plan("y"), on_stage="print"),  # type: ignore[arg-type]
        "on_stage must be a callable (sentence), or None; got 'print'",
    ),
    (
        lambda: tables.predict_table(fitted().model, source(), Path("p.csv"), keep=PAIR),  # type: ignore[arg-type]
        "keep must be True or False; got of type ndarray",
    ),
    (
        lambda: tables.predict_table(fitted().model, source(), Path("p.csv"), on_rows=3),  # type: ignore[arg-type]
        "on_rows must be a callable (rows), or None; got 3",
    ),
    (lambda: fitted().model.outputs(PAIR), "inputs must be a tensor (rows, 2); got of type ndarray"),  # type: ignore[arg-type]
    (
        lambda: fitted().predictions.metrics(np.ones(3, int)),
        "truth must be 2 numbers, one per row; got int64, shape (3",
    ),
    (lambda: fitted().predictions.metrics(np.full(2, 9)), "truth must be class numbers below 2; got 9"),
    (lambda: fitted().model.target.encode([1]), "series must be a pandas Series; got of type list"),
    (lambda: fitted().model.schema.check(3), "names must be several names of columns; got 3"),  # type: ignore[arg-type]
    # Pages.
    (page_of(result={"target": {}}), "result must be a FitResult; got of type dict"),
    (page_of(source=3), "source must be text; got 3"),
    (page_of(model=3), "model must be a path; got 3"),
    # Experiments.
    (reproduce(scale="ful"), "Did you mean 'full'?"),
    (reproduce(scale=PAIR), "scale must be one of 'smoke', 'default', 'full'; got of type ndarray"),
    (reproduce(seed="0"), "seed must be an integer of at least 0; got '0'"),
    (reproduce(data=3), "data must be the path of a folder; got int"),
    (reproduce(out=3), "out must be a path; got 3"),
    (reproduce(out=__file__), "out must be a folder; got the file "),
    (reproduce(resume=PAIR), "resume must be True or False; got of type ndarray"),
    (reproduce(progress=lambda said: None), "progress must be a callable (what, part), or None; got one"),
]


@pytest.mark.parametrize(("call", "words"), CASES, ids=names_of(CASES))
def test_says_what_is_wrong(call: Call, words: str) -> None:
    says_what_is_wrong(call, words)
