"""The check ``buffer-sync``."""
