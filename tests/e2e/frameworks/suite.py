"""Everything of this folder in one run: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import harness

harness.Case.python = harness.TORCH_PYTHON

import jax_loop  # noqa: E402,F401
import keras_backends  # noqa: E402,F401
import keras_fit  # noqa: E402,F401
import lightning  # noqa: E402,F401
import versions  # noqa: E402,F401
import tensorflow_as_ever  # noqa: E402,F401
import trainer  # noqa: E402,F401
import wrapped  # noqa: E402,F401

harness.main()
