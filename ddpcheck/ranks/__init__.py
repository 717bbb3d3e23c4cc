"""Ranks: how they are started, watched over, and brought home, each with its ending."""
