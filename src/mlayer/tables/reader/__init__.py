"""Files to frames: how a text table is written, damaged files, the memory that a table needs."""
