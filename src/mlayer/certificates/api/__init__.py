"""The functions for users: `certify` and `Certifier`."""
