"""A table, a target, an estimator: scikit-learn's diabetes data from a CSV file.

The estimator is used as any other of scikit-learn: cross-validated along with two others, then fitted and
asked which columns matter most.

    python examples/table_estimator.py       some seconds; writes out/table_estimator.png
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import permutation_importance
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlayer

OUT = Path("out")


def main() -> None:
    OUT.mkdir(exist_ok=True)
    csv = OUT / "diabetes.csv"
    load_diabetes(as_frame=True, scaled=False).frame.to_csv(csv, index=False)

    table = pd.read_csv(csv)  # ten measurements of 442 people; target: disease progression after a year
    X, y = table.drop(columns="target"), table["target"]

    # A given alpha saves the search for one. Columns and target are scaled inside.
    model = mlayer.MLayerRegressor(alpha=0.05, max_iter=60, random_state=0)
    rivals = {
        "M-layer": model,
        "ridge": make_pipeline(StandardScaler(), Ridge()),
        "gradient boosting": HistGradientBoostingRegressor(random_state=0),
    }
    predictions = {name: cross_val_predict(one, X, y, cv=5) for name, one in rivals.items()}
    scores = {name: 1 - ((y - p) ** 2).mean() / y.var(ddof=0) for name, p in predictions.items()}
    for name, score in scores.items():
        print(f"{name:18} R^2 on unseen people, 5 folds: {score:.3f}")

    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    model.fit(X_train, y_train)
    found = permutation_importance(model, X_test, y_test, n_repeats=10, random_state=0)
    order = np.argsort(-found.importances_mean)
    print("leans on:", ", ".join(X.columns[order[:3]]))
    layer = model.to_mlayer()  # a plain torch module on the raw columns: save it, certify it, export it
    mlayer.save(layer, OUT / "diabetes.safetensors")
    importances = pd.Series(found.importances_mean, X.columns).iloc[order]
    figure = picture(y, predictions["M-layer"], importances, found.importances_std[order])
    figure.savefig(OUT / "table_estimator.png", dpi=110)
    print(f"Picture: {OUT / 'table_estimator.png'}")


def picture(y: pd.Series, predicted: np.ndarray, importances: pd.Series, deviations: np.ndarray) -> Figure:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot(y, predicted, "o", color="#0072B2", markersize=3, alpha=0.6)
    ends = [y.min(), y.max()]
    left.plot(ends, ends, color="0.3", linewidth=1)
    left.set(xlabel="target", ylabel="prediction")
    left.set_title("people the model has not seen", loc="left")
    right.barh(importances.index, importances, xerr=deviations, color="#56B4E9", ecolor="0.3")
    right.invert_yaxis()
    right.set(xlabel="R² lost when the column is shuffled")
    right.set_title("what it leans on", loc="left")
    return figure


if __name__ == "__main__":
    main()
