"""An independent checker of certificates: python-flint, and nothing of the certifier.

It takes the stored weights, a row and a proof, rebuilds everything the proof speaks about in Arb balls, and
accepts only what it has proved itself. The theorem and its proof: docs/theory/certificates-checker.md.

    layer = Layer(n, d, m, classes, B, T, U, u, S, V)       plain floats
    proof = read_proof("proof.safetensors")
    region = ProofRegion("linf", [1.0] * m)
    verdict = Checker(layer, region, proof).check(x, label, proof["rows"][0])
"""

from mlayer.certificates.checker.balls import ProofError
from mlayer.certificates.checker.check import Checker, Verdict
from mlayer.certificates.checker.frame import ProofRegion
from mlayer.certificates.checker.layer import Layer, digest
from mlayer.certificates.checker.proof_file import file_digest, parse_proof, read_proof

__all__ = [
    "Checker",
    "Layer",
    "ProofError",
    "ProofRegion",
    "Verdict",
    "digest",
    "file_digest",
    "parse_proof",
    "read_proof",
]
