"""Metrics of predictions, in numpy alone: models are used where scikit-learn is not installed."""

from __future__ import annotations

import math

import numpy as np

from mlayer.numerics.arrays import AnyArray

# Below this share of the rarer of two classes, accuracy says little.
IMBALANCED = 0.2

# Whether a larger value is better.
BETTER_HIGH = {
    "accuracy": True,
    "balanced accuracy": True,
    "macro F1": True,
    "log loss": False,
    "ROC AUC": True,
    "average precision": True,
    "RMSE": False,
    "MAE": False,
    "R2": True,
}


def classification_metrics(
    truth: AnyArray, probabilities: AnyArray, guess: AnyArray | None = None
) -> dict[str, float]:
    """Measures of class probabilities.

    Args:
        truth: (rows,) class numbers.
        probabilities: (rows, classes), each row summing to 1.
        guess: (rows,) the predicted classes; the most probable ones if None.

    Returns:
        accuracy; balanced accuracy and macro F1 over the classes that occur in ``truth``; log loss; for
        two classes the area under the ROC curve, ties counted half, and the average precision of the rarer
        class. Where that has fewer than a fifth of the rows, these two come first: always answering the
        other class then has a high accuracy.
    """
    guess = probabilities.argmax(axis=1) if guess is None else guess
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
        rare = rarer_class(truth)
        ranking = {
            "ROC AUC": area_under_roc(truth == 1, probabilities[:, 1]),
            "average precision": average_precision(truth == rare, probabilities[:, rare]),
        }
        metrics = ranking | metrics if (truth == rare).mean() < IMBALANCED else metrics | ranking
    return metrics


def rarer_class(truth: AnyArray) -> int:
    """The rarer of two classes; the second if they are equally frequent."""
    return int((truth == 1).mean() <= 0.5)


def average_precision(positive: AnyArray, score: AnyArray) -> float:
    """The mean over positive rows of the precision at their score, rows of equal score together."""
    hits, rows = counts_above(positive, score)
    return float((np.diff(hits, prepend=0) * (hits / rows)).sum() / max(1, positive.sum()))


def counts_above(positive: AnyArray, score: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Numbers of positive rows and of all rows with each score or a higher one, from the highest score on.

    >>> counts_above(np.array([True, False, True]), np.array([0.9, 0.5, 0.5]))
    (array([1, 2]), array([1, 3]))
    """
    order = np.argsort(-score, kind="stable")
    last = np.append(np.diff(score[order]) != 0, True)
    return np.cumsum(positive[order])[last], np.flatnonzero(last) + 1


def regression_metrics(truth: AnyArray, values: AnyArray) -> dict[str, float]:
    """Root mean squared error, mean absolute error, R^2 (NaN-free: 0 where the truth is constant)."""
    error = values - truth
    spread = ((truth - truth.mean()) ** 2).sum()
    return {
        "RMSE": float(np.sqrt((error**2).mean())),
        "MAE": float(np.abs(error).mean()),
        "R2": float(1 - (error**2).sum() / spread) if spread > 0 else 0.0,
    }


def readable(value: float) -> str:
    """A figure for people: large ones with thousands separated, never 4.574e+04.

    >>> readable(45738.2), readable(0.12345), readable(8.2731)
    ('45,738', '0.1235', '8.273')
    >>> readable(math.inf), readable(-math.inf), readable(math.nan)
    ('infinite', '-infinite', 'none')
    """
    if not math.isfinite(value):
        return "none" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def proportion_interval(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95% interval for a probability (E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209)."""
    z = 1.959963984540054
    share, weight = successes / trials, z * z / trials
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / trials + weight / (4 * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def area_under_roc(positive: AnyArray, score: AnyArray) -> float:
    """The share of pairs (one of each class) that the score orders correctly."""
    order = np.argsort(score, kind="stable")
    ranks = np.empty(len(score))
    _, inverse, counts = np.unique(score[order], return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks[order] = ((last - counts + 1 + last) / 2)[inverse]  # ties share their mean rank
    p = int(positive.sum())
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * (len(score) - p)))
