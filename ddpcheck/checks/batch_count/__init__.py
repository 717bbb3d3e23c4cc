"""The check ``batch-count``."""
