"""Everything of this folder in one run: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import harness

harness.Case.python = harness.TORCH_PYTHON

import blobs  # noqa: E402,F401
import boundaries  # noqa: E402,F401
import hostile  # noqa: E402,F401
import kinds  # noqa: E402,F401
import meanwhile  # noqa: E402,F401
import running  # noqa: E402,F401
import trainers  # noqa: E402,F401
import values  # noqa: E402,F401

harness.main()
