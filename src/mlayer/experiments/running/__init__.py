"""Running experiments by name: protocol, registry, runner, comparison with the paper, provenance."""
