#!/usr/bin/env python3
"""A wrapper in Python that starts the launcher."""

import subprocess
import sys
from pathlib import Path

script = Path(__file__).with_name("train.py")
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
sys.exit(subprocess.run([*command, *sys.argv[1:]]).returncode)
