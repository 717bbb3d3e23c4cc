"""The check ``epoch-reshuffle``."""
