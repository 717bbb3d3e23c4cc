"""The check ``checkpoint-read-after-write``."""
