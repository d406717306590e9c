"""Everything of this folder in one run: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import harness

harness.Case.python = harness.TORCH_PYTHON

import values  # noqa: E402,F401

harness.main()
