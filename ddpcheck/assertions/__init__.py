"""The invariants as assertions inside a ``ddp`` test."""
