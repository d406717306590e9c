#!/bin/sh
# Real training under the agent: what the store holds afterwards, and that the job never noticed.
cd "$(dirname "$0")" || exit 1
if ! "$TORCH_PYTHON" -c 'import torch' 2>/dev/null; then
  echo "FAIL no torch under TORCH_PYTHON=$TORCH_PYTHON"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=.. exec python3 suite.py -j 2 "$@"
