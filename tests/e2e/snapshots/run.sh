#!/bin/sh
# Weights and gradients of real trainings: what the store says of them is what the script computed of copies that it made itself.
cd "$(dirname "$0")" || exit 1
missing=
for package in torch safetensors transformers keras lightning jax; do
  "$TORCH_PYTHON" -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$package'))" 2>/dev/null || missing="$missing $package"
done
if [ -n "$missing" ]; then
  echo "FAIL no$missing under TORCH_PYTHON=$TORCH_PYTHON"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=..:../frameworks exec python3 suite.py -j 2 "$@"
