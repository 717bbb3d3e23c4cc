"""What an adapter says where its library has no such thing."""

from __future__ import annotations


class NotSupported(Exception):
    """Raised by ``fit(job)`` where the library cannot do what the job asks for: the checks are then not checked."""


NotSupported.__module__ = "ddpcheck"  # its public home
