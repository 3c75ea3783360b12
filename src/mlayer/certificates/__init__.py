"""Certificates: proved robustness radii of M-layers, attacks beside them, and a loss to train for them."""

from mlayer.certificates.attack import Attack, attack
from mlayer.certificates.certifier import Certifier, certify
from mlayer.certificates.loss import CertifiedLoss
from mlayer.certificates.result import Certificates

__all__ = ["Attack", "Certificates", "CertifiedLoss", "Certifier", "attack", "certify"]
