"""One file a command, each with a click command named `command`."""
