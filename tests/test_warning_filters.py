"""Warnings of our own code fail a test; those of other packages do not. (pyproject.toml says why.)"""

from __future__ import annotations

import warnings

import pytest


def _warn(category: type[Warning], module: str) -> None:
    warnings.warn_explicit("words", category, f"{module.replace('.', '/')}.py", 1, module=module, registry={})


@pytest.mark.parametrize("category", [UserWarning, RuntimeWarning, ResourceWarning])
@pytest.mark.parametrize("module", ["mlayer.nn.layer", "mlayer", "test_layer", "conftest"])
def test_a_warning_of_ours_is_an_error(category: type[Warning], module: str) -> None:
    with pytest.raises(category, match="words"):
        _warn(category, module)


@pytest.mark.parametrize("category", [UserWarning, RuntimeWarning, DeprecationWarning, FutureWarning])
@pytest.mark.parametrize("module", ["torch.nn.modules", "sklearn.base", "somebody.mlayer"])
def test_a_warning_of_others_is_not(category: type[Warning], module: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        _warn(category, module)
    assert len(seen) == 1
