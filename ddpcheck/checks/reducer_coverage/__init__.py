"""The check ``reducer-coverage``."""
