"""The check ``parameter-sync``."""
