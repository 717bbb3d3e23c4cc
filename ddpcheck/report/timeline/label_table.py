"""Labels, lines and groups, each once: events name them by their numbers."""

from __future__ import annotations

from ddpcheck.report.timeline.timeline import TITLES, Label, Place

MOST = 20_000
"""Labels; a program may call its collectives with a new shape each time."""


class Labels:
    """What the events of a timeline have in common."""

    def __init__(self) -> None:
        self.labels: list[Label] = []
        self.places: list[Place] = []
        self.groups: list[str] = []
        self._labels: dict[Label, int] = {}
        self._places: dict[Place, int] = {}
        self._groups: dict[str, int] = {}
        self.generic = [self.label(Label(kind, title)) for kind, title in enumerate(TITLES)]
        """The label of each kind where nothing more is known, or there are too many."""

    def label(self, label: Label) -> int:
        known = self._labels.get(label)
        if known is None:
            if len(self.labels) >= MOST:
                return self._general(label)
            known = self._labels[label] = len(self.labels)
            self.labels.append(label)
        return known

    def _general(self, label: Label) -> int:
        """One that says less; calls of a group stay in it."""
        if label.group < 0 or len(self.labels) >= 2 * MOST:
            return self.generic[label.kind]
        general = Label(label.kind, TITLES[label.kind], -1, label.group)
        known = self._labels.get(general)
        if known is None:
            known = self._labels[general] = len(self.labels)
            self.labels.append(general)
        return known

    def place(self, place: Place) -> int:
        known = self._places.get(place)
        if known is None:
            known = self._places[place] = len(self.places)
            self.places.append(place)
        return known

    def group(self, name: str) -> int:
        known = self._groups.get(name)
        if known is None:
            known = self._groups[name] = len(self.groups)
            self.groups.append(name)
        return known
