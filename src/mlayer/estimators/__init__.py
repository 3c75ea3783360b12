"""scikit-learn estimators on top of the training loop. Needs scikit-learn."""

from mlayer.errors import MissingPackageError

try:
    import sklearn  # noqa: F401
except ImportError:
    raise MissingPackageError(
        "MLayerClassifier and MLayerRegressor", "scikit-learn", "pip install 'mlayer[estimators]'"
    ) from None

from mlayer.estimators.classifier import MLayerClassifier
from mlayer.estimators.regressor import MLayerRegressor

__all__ = ["MLayerClassifier", "MLayerRegressor"]
