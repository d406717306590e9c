"""Everything of this folder in one run: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import harness

import programs  # noqa: F401
import pythons  # noqa: F401
import private  # noqa: F401
import limits  # noqa: F401
import endpoints  # noqa: F401
import symbols  # noqa: F401
import threads  # noqa: F401
import company  # noqa: F401
import warm  # noqa: F401
import workbench  # noqa: F401

harness.main()
