"""The check ``resume-equivalence``."""
