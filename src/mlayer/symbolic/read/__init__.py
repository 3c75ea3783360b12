"""Layers to formulas: exact where they are, fitted elsewhere, with the error that remains."""
