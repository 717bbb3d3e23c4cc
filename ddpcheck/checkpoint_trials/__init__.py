"""Assertions on checkpoints: one writer, whole at any moment, loaded in full, and gone on from as if never stopped."""
