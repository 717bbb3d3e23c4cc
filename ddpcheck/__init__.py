"""ddpcheck: know that distributed training is right. Importing it imports no torch."""

from __future__ import annotations
