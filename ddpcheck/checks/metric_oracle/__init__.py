"""The check ``metric-oracle``."""
