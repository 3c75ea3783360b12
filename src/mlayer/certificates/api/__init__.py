"""The entry points: `certify`, `Certifier` and `bounds`."""
