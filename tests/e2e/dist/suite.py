"""What an operator meets: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import harness
import doctoring  # noqa: F401  each adds its tests
import packaging  # noqa: F401
import python_package  # noqa: F401
import running  # noqa: F401
import serving  # noqa: F401

harness.main()
