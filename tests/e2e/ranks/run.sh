#!/bin/sh
# Trainings of several ranks: what is recorded of their collectives, how they are compared, who is named when they hang.
cd "$(dirname "$0")" || exit 1
if ! "$TORCH_PYTHON" -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null; then
  echo "FAIL no torch with gloo under TORCH_PYTHON=$TORCH_PYTHON"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=.. exec python3 suite.py -j 2 "$@"
