"""Where ddpcheck's own code lies: its frames are told from the user's by the file."""

from __future__ import annotations

import os

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
PROBES = PACKAGE + "probes" + os.sep
