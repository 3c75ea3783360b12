"""`mlayer fit` on ten tables like those of its users, compared with the usual alternatives.

    python benchmarks/user_tables.py             resumes where it was stopped; writes results/user_tables.json
    python benchmarks/user_tables.py --quick     one table, one seed; no file

Tables from seeds (benchmarks/table_data.py): messy, grouped, seasonal, imbalanced, products, quotients. Each
with three seeds that nothing was tuned on. The optimizer of the estimators was compared with its predecessor
on other seeds of houses, churn, daily sales, two stores, centripetal force and twenty columns; the other four
tables were written afterwards and changed nothing.

mlayer gets the raw table, currency signs, units and spellings included. The others get clean numbers and,
where there are dates, day number, weekday, day of the year and hour; numbers are scaled for ridge, logistic
regression and MLP, and so is the target of a regression; missing numbers are filled with the median,
categories are one-hot. Prophet gets the date and the other columns as regressors, one model for each group,
where it is installed. Everything else is a default.

Score: R^2, or the area under the ROC curve, on rows that no method has seen (for series, later ones): the
median of the seeds. Seconds: processor time of fit and prediction, one thread.
"""

from __future__ import annotations

import json
import logging
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch
from measure import RESULTS, argument_parser, circumstances, save
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from table_data import USER_TABLES, Case, law, sales

from mlayer.tables import Plan, fit_table

FILE = RESULTS / "user_tables.json"
SEEDS = (101, 202, 303)
Method = Callable[[Case], Any]  # predictions for the test rows: values, or probabilities of the second class


def ours(case: Case) -> Any:
    """The raw table in, as `mlayer fit` and `mlayer predict` do it."""
    raw = case.mess
    result = fit_table(raw(case.train), Plan(target=case.target))
    outputs = result.model.predict(raw(case.test).drop(columns=case.target)).outputs
    return outputs[:, 1] if case.classes else outputs


def features(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """The inputs without the target and identifiers; dates as four numbers."""
    frame = frame.drop(columns=[target, *(name for name in frame if name.endswith("_id"))])
    if "date" in frame:
        dates = pd.to_datetime(frame.pop("date"))
        frame["day"] = (dates - pd.Timestamp("2020-01-01")) / pd.Timedelta(days=1)
        frame["weekday"], frame["day of year"] = dates.dt.weekday, dates.dt.dayofyear
        frame["hour"] = dates.dt.hour
    return frame


def with_sklearn(regressor: Callable[[], Any], classifier: Callable[[], Any], scaled: bool) -> Method:
    """A method of scikit-learn behind the usual preparation."""

    def run(case: Case) -> Any:
        x, test = (features(part, case.target) for part in (case.train, case.test))
        numbers = list(x.select_dtypes("number"))
        steps = [SimpleImputer(strategy="median"), StandardScaler()] if scaled else ["passthrough"]
        prepare = make_column_transformer(
            (make_pipeline(*steps), numbers),
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), [c for c in x if c not in numbers]),
        )
        model = make_pipeline(prepare, classifier() if case.classes else regressor())
        model.fit(x, case.train[case.target])
        return model.predict_proba(test)[:, 1] if case.classes else model.predict(test)

    return run


def with_prophet(case: Case) -> Any:
    """One model for each group, the other columns as regressors."""
    from prophet import Prophet

    train, test = (part.assign(ds=pd.to_datetime(part["date"])) for part in (case.train, case.test))
    numbers = set(train.select_dtypes("number"))
    groups = [c for c in train if c not in numbers and c not in ("date", "ds")]
    found = np.full(len(test), np.nan)
    keys = [train[c] for c in groups] or [pd.Series(0, train.index)]
    for key, rows in train.groupby(keys):
        mine = np.ones(len(test), dtype=bool)
        for column, value in zip(groups, key, strict=bool(groups)):
            mine &= (test[column] == value).to_numpy()
        model = Prophet()
        others = [c for c in rows if c not in ("date", "ds", case.target, *groups)]
        for column in others:
            model.add_regressor(column)
        model.fit(rows[["ds", *others]].assign(y=rows[case.target]))
        found[mine] = model.predict(test.loc[mine, ["ds", *others]])["yhat"].to_numpy()
    return found


METHODS: dict[str, Method] = {
    "mlayer": ours,
    "boosting": with_sklearn(
        lambda: HistGradientBoostingRegressor(random_state=0),
        lambda: HistGradientBoostingClassifier(random_state=0),
        scaled=False,
    ),
    "linear": with_sklearn(
        lambda: RidgeCV(np.logspace(-3, 3, 13)), lambda: LogisticRegression(max_iter=1000), scaled=True
    ),
    "MLP": with_sklearn(
        lambda: TransformedTargetRegressor(MLPRegressor(random_state=0), transformer=StandardScaler()),
        lambda: MLPClassifier(random_state=0),
        scaled=True,
    ),
    "Prophet": with_prophet,
}


def processor_seconds() -> float:
    """Processor time of this process and of its children: Prophet computes in a child process."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measured(name: str, case: Case) -> dict[str, float] | None:
    """Score and processor seconds, or None where the method does not apply."""
    if name == "Prophet":
        try:
            import prophet  # noqa: F401
        except ImportError:
            return None
        if not case.series:
            return None
    start = processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # defaults that stop before they have converged
        predicted = METHODS[name](case)
    seconds = processor_seconds() - start
    truth = case.test[case.target]
    if case.classes:
        score = roc_auc_score(truth == sorted(set(truth))[1], predicted)
    else:
        score = r2_score(truth, predicted)
    return {"score": float(score), "seconds": seconds}


def summary(runs: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Medians over the seeds, by method."""
    names = next(iter(runs.values()))
    return {
        name: {
            kind: statistics.median(run[name][kind] for run in runs.values()) for kind in ("score", "seconds")
        }
        for name in names
    }


def main() -> int:
    """Fit, print, write."""
    parser = argument_parser(__doc__, "one table, one seed; no file")
    parser.add_argument("--anew", action="store_true", help="forget what the file has")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    record: dict[str, Any] = {}
    if FILE.exists() and not (arguments.quick or arguments.anew):
        record = json.loads(FILE.read_text())["tables"]
    for name in METHODS:  # what is loaded on first use is not part of the seconds
        measured(name, sales(years=2) if name == "Prophet" else law(rows=100))
    chosen = ["centripetal force"] if arguments.quick else list(USER_TABLES)
    for table in chosen:
        entry = record.setdefault(table, {"runs": {}})
        for seed in SEEDS[: 1 if arguments.quick else None]:
            if str(seed) in entry["runs"]:
                continue
            case = USER_TABLES[table](seed)
            found = {name: measured(name, case) for name in METHODS}
            entry["runs"][str(seed)] = {name: value for name, value in found.items() if value is not None}
            entry |= {"rows": len(case.train), "columns": case.train.shape[1] - 1, "series": case.series}
            entry |= {"score": "ROC AUC" if case.classes else "R2", "methods": summary(entry["runs"])}
            if not arguments.quick:
                facts = circumstances() | {"scikit-learn": sklearn.__version__, "seeds": list(SEEDS)}
                save(FILE.stem, {"setting": facts, "tables": record})
        line = "  ".join(
            f"{name} {value['score']:.3f} ({value['seconds']:.1f} s)"
            for name, value in entry["methods"].items()
        )
        print(f"{table:18} {entry['score']:8} {line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
