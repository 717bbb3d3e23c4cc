"""Digests: equal content is recognised without moving it."""
