"""The check ``process-hygiene``."""
