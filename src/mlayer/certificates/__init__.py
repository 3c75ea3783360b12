"""Certificates: proved robustness radii of M-layers, attacks, and a loss to train for certificates.

    api/          certify, Certifier
    problem/      region, weights, coordinates, constants, the expansion at an input
    derivatives/  second and third derivative tensors
    bounds/       lower bounds of a margin, listed in bounds/methods.py
    solve/        which bound is tried when, the search for a radius
    boxes/        bounds of outputs over boxes of inputs
    networks/     bounds through the modules in front of an M-layer
    adversarial*  the attack
    checker/      an independent program that checks proofs; proofs/ makes them

Names load when they are first asked for: the command line reads the table of bounds without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlayer.certificates.adversarial import Attack, attack
    from mlayer.certificates.api.certifier import Certifier, certify
    from mlayer.certificates.loss import CertifiedLoss
    from mlayer.certificates.result import Certificates

_FILE_OF = {
    "Attack": "adversarial",
    "Certificates": "result",
    "CertifiedLoss": "loss",
    "Certifier": "api.certifier",
    "attack": "adversarial",
    "certify": "api.certifier",
}

__all__ = ["Attack", "Certificates", "CertifiedLoss", "Certifier", "attack", "certify"]


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module 'mlayer.certificates' has no attribute {name!r}")
    value = getattr(import_module(f"mlayer.certificates.{_FILE_OF[name]}"), name)
    globals()[name] = value
    return value
