"""Proofs of certificates: found in float64, confirmed by `mlayer.certificates.checker`."""

from mlayer.certificates.proofs.check import check_proof, check_rows
from mlayer.certificates.proofs.proof import Proof
from mlayer.certificates.proofs.prover import Prover

__all__ = ["Proof", "Prover", "check_proof", "check_rows"]
