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
    from mlayer.certificates.api.bounds_over_boxes import bounds
    from mlayer.certificates.boxes import OutputBounds
    from mlayer.estimators import MLayerClassifier, MLayerRegressor
    from mlayer.exponential import ExpmPath, expm, expm_action, expm_path, logm, sqrtm
    from mlayer.files import export_onnx, load, save
    from mlayer.nn import MLayer
    from mlayer.symbolic import explain, from_boolean, from_function, from_polynomial, to_sympy
    from mlayer.training import Settings, train

# Everything loads when it is first asked for: torch takes seconds, and `mlayer --help` should not.
_NAMES_IN = {
    "certificates": ("Attack", "Certificates", "Certifier", "attack", "certify"),
    "certificates.api.bounds_over_boxes": ("bounds",),
    "certificates.boxes": ("OutputBounds",),
    "datasets": (),
    "errors": (),
    "estimators": ("MLayerClassifier", "MLayerRegressor"),
    "experiments": (),
    "exponential": ("ExpmPath", "expm", "expm_action", "expm_path", "logm", "sqrtm"),
    "files": ("export_onnx", "load", "save"),
    "nn": ("MLayer",),
    "report": (),
    "symbolic": ("explain", "from_boolean", "from_function", "from_polynomial", "to_sympy"),
    "tables": (),
    "training": ("Settings", "train"),
}
_PACKAGES = tuple(package for package in _NAMES_IN if "." not in package)
_PACKAGE_OF = {name: package for package, names in _NAMES_IN.items() for name in names}
# Packages that need more than torch, and what to install for them.
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
    "OutputBounds",
    "Settings",
    "__version__",
    "attack",
    "bounds",
    "certify",
    "explain",
    "expm",
    "expm_action",
    "expm_path",
    "export_onnx",
    "from_boolean",
    "from_function",
    "from_polynomial",
    "load",
    "logm",
    "save",
    "sqrtm",
    "to_sympy",
    "train",
]


def __getattr__(name: str) -> Any:
    package = _PACKAGE_OF.get(name, name)
    if name not in _PACKAGE_OF and name not in _PACKAGES:
        raise AttributeError(f"module 'mlayer' has no attribute {name!r}")
    try:
        module = import_module(f"mlayer.{package}")
    except ModuleNotFoundError as error:
        project, imported, install = _EXTRA.get(package, ("", "", ""))
        if error.name != imported:
            raise
        raise MissingPackageError(f"mlayer.{name}", project, install) from None
    value = getattr(module, name) if name in _PACKAGE_OF else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
