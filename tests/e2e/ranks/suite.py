"""Everything of this folder in one run: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import harness

harness.Case.python = harness.TORCH_PYTHON

import collectives  # noqa: E402,F401
import compare  # noqa: E402,F401
import hangs  # noqa: E402,F401
import sharded  # noqa: E402,F401

harness.main()
