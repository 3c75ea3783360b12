"""How good predictions are, in numpy alone: models are used where scikit-learn is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Is more better?
BETTER_HIGH = {
    "accuracy": True,
    "balanced accuracy": True,
    "macro F1": True,
    "log loss": False,
    "ROC AUC": True,
    "RMSE": False,
    "MAE": False,
    "R2": True,
}


def classification_metrics(truth: Array, probabilities: Array) -> dict[str, float]:
    """Measures of class probabilities.

    Args:
        truth: (rows,) class numbers.
        probabilities: (rows, classes), each row summing to 1.

    Returns:
        accuracy; balanced accuracy and macro F1 over the classes that occur in ``truth``; log loss; for
        two classes the area under the ROC curve, ties counted half.
    """
    guess = probabilities.argmax(axis=1)
    present = np.unique(truth)
    recall = np.array([(guess[truth == k] == k).mean() for k in present])
    precision = np.array([(truth[guess == k] == k).mean() if (guess == k).any() else 0.0 for k in present])
    both = precision + recall
    f1 = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0)
    chosen = probabilities[np.arange(len(truth)), truth]
    metrics = {
        "accuracy": float((guess == truth).mean()),
        "balanced accuracy": float(recall.mean()),
        "macro F1": float(f1.mean()),
        "log loss": float(-np.log(np.clip(chosen, np.finfo(np.float64).eps, 1.0)).mean()),
    }
    if probabilities.shape[1] == 2 and len(present) == 2:
        metrics["ROC AUC"] = _area(truth == 1, probabilities[:, 1])
    return metrics


def regression_metrics(truth: Array, values: Array) -> dict[str, float]:
    """Root of the mean squared error, mean absolute error, R^2 (NaN-free: 0 where the truth is constant)."""
    error = values - truth
    spread = ((truth - truth.mean()) ** 2).sum()
    return {
        "RMSE": float(np.sqrt((error**2).mean())),
        "MAE": float(np.abs(error).mean()),
        "R2": float(1 - (error**2).sum() / spread) if spread > 0 else 0.0,
    }


def proportion_interval(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a probability (E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209)."""
    z = 1.959963984540054
    share, weight = successes / trials, z * z / trials
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / trials + weight / (4 * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def _area(positive: Array, score: Array) -> float:
    """The share of pairs (one of each class) that the score orders rightly."""
    order = np.argsort(score, kind="stable")
    ranks = np.empty(len(score))
    _, inverse, counts = np.unique(score[order], return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks[order] = ((last - counts + 1 + last) / 2)[inverse]  # ties share their mean rank
    p = int(positive.sum())
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * (len(score) - p)))
