#!/bin/bash
# As people keep them: settings, and the launcher at the end.
export OMP_NUM_THREADS=1
cd "$(dirname "$0")" || exit 1
exec torchrun --standalone --nproc-per-node 2 train.py "$@"
