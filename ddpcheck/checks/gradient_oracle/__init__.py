"""The check ``gradient-oracle``."""
