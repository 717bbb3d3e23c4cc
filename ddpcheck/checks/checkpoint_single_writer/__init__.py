"""The check ``checkpoint-single-writer``."""
