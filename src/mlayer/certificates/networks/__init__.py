"""Certificates of networks that end in an M-layer: bounds through the modules in front of it."""
