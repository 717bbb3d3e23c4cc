"""The check ``device-placement``."""
