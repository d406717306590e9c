#!/bin/bash
# What the agent costs, as ratios from this machine at this moment. Nothing here fails for being slow; docs/measurements.md keeps
# numbers that were seen. Takes about twelve minutes. B is the build folder.
set -eu
cd "$(dirname "$0")/../.."
export BUILD=$PWD/${B:-build}
python=$PWD/.venv/bin/python
mapfile -t pythons < <(tests/run_pythons.sh)
echo "Machine: $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg)"

echo "A span in C, with a live collector (goal: ratio 1.35)"
"$python" tests/bench/compare.py "$BUILD/span_cost"
echo "Functions of the module, against the same in C without keeping anything"
"$python" tests/bench/surface.py "${pythons[@]}"
echo "Statistics of tensors, against one bare read of them (goals: AVX-512 2.5, AVX2 5; 5 times as fast as scalar)"
"$BUILD/bench/tensor_bench"
echo "Start and end of /bin/true (goal: 1.05)"
"${CC:-cc}" -O2 -D_GNU_SOURCE -o "$BUILD/exec_cost" tests/bench/exec_cost.c
echo "" | "${CC:-cc}" -shared -fPIC -o "$BUILD/empty.so" -x c -
"$BUILD/exec_cost" "$BUILD/libcirron_agent.so" "$BUILD/empty.so" 1500
echo "Call-bound Python that is not observed (goal: 1.01)"
"$python" tests/bench/compare.py calls "${pythons[@]}"
echo "Training (goals: mlp 1.02, cnn 1.005)"
"$python" tests/bench/compare.py train "$python"
"$python" tests/bench/snapshot_train.py "$python"
echo "The smallest sensible loop of each framework (goal: 1.02)"
"$python" tests/bench/compare.py frameworks "$python"
if command -v valgrind callgrind_control >/dev/null; then
  echo "Instructions of that training"
  "$python" tests/bench/compare.py instructions "$python"
else
  echo "Instructions of that training: not counted, there is no valgrind"
fi
