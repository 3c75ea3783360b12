"""Formulas to layers: boards of exact numbers, made small, turned into weights."""
