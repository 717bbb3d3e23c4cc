"""Assertions on checkpoints: saved by one rank, whole at any moment, loaded in full, and gone on from as if never stopped."""
