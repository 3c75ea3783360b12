"""The formula of a table's model, in the names of its columns."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.symbolic.read.explain import Explanation, explain
from mlayer.tables.horizon import at_last_level
from mlayer.tables.model import TableModel

if TYPE_CHECKING:
    from pandas import DataFrame

# Names that a formula has for something else.
_TAKEN = {"I", "E", "S", "N", "O", "Q", "pi", "exp", "sin", "cos", "p", "beta", "gamma", "zeta", "lambda"}


def symbols_of(features: tuple[str, ...]) -> list[str]:
    r"""Names of features as symbols: letters, digits and underscores, each different.

    >>> symbols_of(("age (years)", "city = Rome", "age.years", "2nd", "I", "m\xb2"))
    ['age_years', 'city_Rome', 'age_years_2', 'x_2nd', 'I_', 'm2']
    """
    names: dict[str, None] = {}
    counts: dict[str, int] = {}
    for feature in features:
        # A raised 2 is a digit that may not stand in a name; here it is a 2.
        kept = "".join(c if f"x{c}".isidentifier() else " " for c in normalize("NFKC", feature))
        name = re.sub(r"\W+", "_", kept).strip("_") or "x"
        name = name if name.isidentifier() else f"x_{name}"
        name = f"{name}_" if name in _TAKEN or keyword.iskeyword(name) else name
        stem = name
        while name in names:
            counts[stem] = counts.get(stem, 1) + 1
            name = f"{stem}_{counts[stem]}"
        names[name] = None
    return list(names)


def explain_table(model: TableModel, frame: DataFrame | None = None, **options: Any) -> Explanation:
    """Read the formula of a table's model and measure it against the model and, if given, the table.

    A classifier's formulas are those of its logits, one per class.

    Args:
        model: the model.
        frame: the raw table: where the formula should hold. With the target column of a regression the error
            against the data is measured too. Of a series whose level has shifted, earlier rows count as if
            they had the last level, as they did in the fit.
        options: of :func:`mlayer.to_sympy`.
    """
    names = symbols_of(model.schema.features)
    # The target's name; of a classifier one for the logit of each class.
    labels = [f"{model.target.name} {label}" for label in model.target.classes] or [model.target.name]
    outputs = tuple(symbols_of((*model.schema.features, *labels))[len(names) :])
    if frame is None:
        return explain(model.layer, None, names, outputs, **options)
    if not len(frame):
        raise ArgumentError("the table", "of one row or more", "none", "Check how it was written.")
    inputs, _ = model.encode(frame)
    data: Any = inputs
    if model.target.name in frame.columns and not model.target.classifies:
        truth, _ = model.target.encode(frame[model.target.name])
        truth = at_last_level(model.facts, model.schema, inputs.double().numpy(), truth)
        known = np.isfinite(truth)
        data = (inputs[known], truth[known][:, None])
    return explain(model.layer, data, names, outputs, **options)
