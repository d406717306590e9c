"""Everything of this folder in one run: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import harness

harness.Case.python = harness.TORCH_PYTHON

import cost  # noqa: E402,F401
import endings  # noqa: E402,F401
import frameworks  # noqa: E402,F401
import inferred  # noqa: E402,F401
import known_faults  # noqa: E402,F401
import loops  # noqa: E402,F401
import processes  # noqa: E402,F401
import tensor_answers  # noqa: E402,F401

harness.main()
