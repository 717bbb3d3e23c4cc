"""TODO."""


def watch() -> None:
    pass
