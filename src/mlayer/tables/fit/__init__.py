"""Frames to models: the plan, rows with a target, the split, suspicious columns, the fit and its result."""
