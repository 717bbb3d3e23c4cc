"""The check ``collective-order``."""
