"""The check ``no-hang``."""
