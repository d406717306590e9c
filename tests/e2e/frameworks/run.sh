#!/bin/sh
# Trainers of frameworks under the agent: what the store holds is what the framework itself counted.
# TensorFlow is large; it is tested with where TENSORFLOW_PYTHON, else TORCH_PYTHON, has it.
cd "$(dirname "$0")" || exit 1
missing=
for package in transformers accelerate keras lightning pytorch_lightning jax; do
  "$TORCH_PYTHON" -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$package'))" 2>/dev/null || missing="$missing $package"
done
if [ -n "$missing" ]; then
  echo "FAIL no$missing under TORCH_PYTHON=$TORCH_PYTHON"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=.. exec python3 suite.py -j 2 "$@"
