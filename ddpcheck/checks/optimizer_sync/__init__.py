"""The check ``optimizer-sync``."""
