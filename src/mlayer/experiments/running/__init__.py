"""Running experiments by name: protocol, registry, runner, rows beside the paper's, provenance."""
