"""Says in one line that a Python is too old, readable by every one since 2.7; make runs it first."""

import sys

OLDEST = (3, 11)

if sys.version_info < OLDEST:
    found, wanted = sys.version.split()[0], "%d.%d" % OLDEST
    advice = "try: make PYTHON=python3.12 ..."
    sys.exit("mlayer: Python %s is too old, %s or newer is needed; %s" % (found, wanted, advice))
