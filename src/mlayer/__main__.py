"""`python -m mlayer`."""

import sys

from mlayer.cli import main

if __name__ == "__main__":
    sys.exit(main())
