"""What an operator meets: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import harness
import serving  # noqa: F401  each adds its tests

harness.main()
