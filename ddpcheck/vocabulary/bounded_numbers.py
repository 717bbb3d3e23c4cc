"""Numbers of which it is known how large they can be: what is decoded and claims another one is refused."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Seconds = Annotated[float, Meta(ge=-1e10, le=1e10)]
"""A moment, or how long something took: no infinite one, and none that is no number."""
ProcessNumber = Annotated[int, Meta(ge=0, lt=1 << 31)]
SignalNumber = Annotated[int, Meta(ge=0, le=64)]
RankNumber = Annotated[int, Meta(ge=0, lt=1 << 17)]
RankCount = Annotated[int, Meta(ge=1, le=1 << 17)]
Microseconds = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
