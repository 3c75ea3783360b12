"""mlayer: the M-layer, a model whose only nonlinearity is one matrix exponential."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlayer.errors import MissingPackageError, MLayerError
from mlayer.version import __version__

if TYPE_CHECKING:
    from mlayer import certificates as certificates
    from mlayer import datasets as datasets
    from mlayer import errors as errors
    from mlayer import estimators as estimators
    from mlayer import experiments as experiments
    from mlayer import exponential as exponential
    from mlayer import files as files
    from mlayer import nn as nn
    from mlayer import report as report
    from mlayer import symbolic as symbolic
    from mlayer import tables as tables
    from mlayer import training as training
    from mlayer.certificates import Attack, Certificates, Certifier, attack, certify
    from mlayer.estimators import MLayerClassifier, MLayerRegressor
    from mlayer.exponential import ExpmPath, expm, expm_path
    from mlayer.files import export_onnx, load, save
    from mlayer.nn import MLayer
    from mlayer.symbolic import explain, from_boolean, from_function, from_polynomial, to_sympy
    from mlayer.training import Settings, train

# Everything loads when it is first asked for: torch takes seconds, and `mlayer --help` should not.
_ROOM_OF = {
    "Attack": "certificates",
    "Certificates": "certificates",
    "Certifier": "certificates",
    "ExpmPath": "exponential",
    "MLayer": "nn",
    "MLayerClassifier": "estimators",
    "MLayerRegressor": "estimators",
    "Settings": "training",
    "attack": "certificates",
    "certify": "certificates",
    "explain": "symbolic",
    "expm": "exponential",
    "expm_path": "exponential",
    "export_onnx": "files",
    "from_boolean": "symbolic",
    "from_function": "symbolic",
    "from_polynomial": "symbolic",
    "load": "files",
    "save": "files",
    "to_sympy": "symbolic",
    "train": "training",
}
_ROOMS = (
    "certificates",
    "datasets",
    "errors",
    "estimators",
    "experiments",
    "exponential",
    "files",
    "nn",
    "report",
    "symbolic",
    "tables",
    "training",
)
# Rooms that need more than torch, and what to install for them.
_EXTRA = {"estimators": ("scikit-learn", "sklearn", "pip install 'mlayer[estimators]'")}

__all__ = [
    "Attack",
    "Certificates",
    "Certifier",
    "ExpmPath",
    "MLayer",
    "MLayerClassifier",
    "MLayerError",
    "MLayerRegressor",
    "Settings",
    "__version__",
    "attack",
    "certify",
    "explain",
    "expm",
    "expm_path",
    "export_onnx",
    "from_boolean",
    "from_function",
    "from_polynomial",
    "load",
    "save",
    "to_sympy",
    "train",
]


def __getattr__(name: str) -> Any:
    room = _ROOM_OF.get(name, name)
    if name not in _ROOM_OF and name not in _ROOMS:
        raise AttributeError(f"module 'mlayer' has no attribute {name!r}")
    try:
        module = import_module(f"mlayer.{room}")
    except ModuleNotFoundError as error:
        package, imported, install = _EXTRA.get(room, ("", "", ""))
        if error.name != imported:
            raise
        raise MissingPackageError(f"mlayer.{name}", package, install) from None
    value = getattr(module, name) if name in _ROOM_OF else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
