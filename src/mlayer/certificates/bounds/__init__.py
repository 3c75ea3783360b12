"""Lower bounds of a margin over a region: one file each, listed in `methods.METHODS`."""
