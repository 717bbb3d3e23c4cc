"""The check ``checkpoint-atomic-save``."""
