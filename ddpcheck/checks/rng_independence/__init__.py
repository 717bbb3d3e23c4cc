"""The check ``rng-independence``."""
