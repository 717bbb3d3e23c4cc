"""The check ``gradient-sync``."""
