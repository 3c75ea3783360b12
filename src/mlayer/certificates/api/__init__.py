"""What users call: `certify` and `Certifier`."""
