"""Proofs about rows: radii of classes, intervals of quantities, and the check of a proof file."""
