"""The check ``rank-failure``."""
