"""Derivative tensors of the margin: by eigenvectors, by jets, and where the expansion ends."""
