"""What names a GPU, or an instance of one, is asked of the driver, of torch, and of the environment, in this order."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from ddpcheck.gpus import hardware_names, visible_devices

WHOLE = "00010203-0405-0607-0809-0a0b0c0d0e0f"
INSTANCE = "10111213-1415-1617-1819-1a1b1c1d1e1f"


class Driver:
    """The driver's library, as far as it is asked: an older one has no second function for UUIDs."""

    def __init__(self, first: int | None = None, second: int | None = None, place: str = "", code: int = 0) -> None:
        self.code = code
        if first is not None:
            self.cuDeviceGetUuid = self._writes(first)
        if second is not None:
            self.cuDeviceGetUuid_v2 = self._writes(second)
        if place:
            self.cuDeviceGetPCIBusId = lambda text, size, device: setattr(text, "value", place.encode()) or 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = index + 40
        return self.code

    @staticmethod
    def _writes(first: int) -> Any:
        def tell(raw: Any, device: Any) -> int:
            assert device.value == 41
            for place in range(16):
                raw[place] = first + place if first >= 0 else 0
            return 0

        return tell


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv(visible_devices.VARIABLE, raising=False)
    monkeypatch.delenv(visible_devices.ORDER, raising=False)

    def use(**has: Any) -> None:
        monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(**has))

    return use


NOTHING = SimpleNamespace()
TOLD = SimpleNamespace(uuid=WHOLE)


def test_the_driver_knows_instances(driver: Any) -> None:
    """Their UUIDs are not the GPU's, which torch tells for all of them; and they are said to be instances."""
    driver(first=0, second=16)
    assert hardware_names.name_of(1, TOLD) == f"MIG-{INSTANCE}"
    driver(first=0, second=0)
    assert hardware_names.name_of(1, NOTHING) == f"GPU-{WHOLE}"


def test_an_older_driver_and_torch(driver: Any) -> None:
    driver(first=0)
    assert hardware_names.name_of(1, NOTHING) == f"GPU-{WHOLE}"
    driver()
    assert hardware_names.name_of(1, TOLD) == f"GPU-{WHOLE}"
    assert hardware_names.name_of(1, SimpleNamespace(uuid=f"MIG-{INSTANCE}")) == f"MIG-{INSTANCE}"
    driver(first=0, second=16, code=3)  # CUDA is not in use in this process
    assert hardware_names.name_of(1, NOTHING) == ""


def test_without_a_uuid_the_bus_names_it(driver: Any) -> None:
    driver(first=-1, second=-1, place="0000:3B:00.0")
    assert hardware_names.name_of(1, NOTHING) == "0000:3b:00.0"
    assert hardware_names.name_of(1, SimpleNamespace(uuid="00000000-0000-0000-0000-000000000000")) == "0000:3b:00.0"


def test_without_the_drivers_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert hardware_names.name_of(1, NOTHING) == ""
    assert hardware_names.name_of(1, TOLD) == f"GPU-{WHOLE}"


@pytest.mark.parametrize(
    ("known", "visible", "order", "name"),
    [
        (TOLD, None, None, f"GPU-{WHOLE}"),
        (TOLD, f"0,MIG-{INSTANCE}", None, f"MIG-{INSTANCE}"),
        (TOLD, f"0,MIG-GPU-{WHOLE}/3/0", None, f"MIG-GPU-{WHOLE}/3/0"),
        (TOLD, "0,GPU-0001", None, f"GPU-{WHOLE}"),
        (NOTHING, "0,GPU-0001", None, "GPU-0001"),
        (NOTHING, "0,3", None, "cuda:3"),
        (NOTHING, "0,3", "PCI_BUS_ID", "cuda:3 by PCI_BUS_ID"),
        (NOTHING, "0", None, ""),
        (NOTHING, None, None, ""),
    ],
)
def test_a_process_has_its_variable(
    driver: Any, monkeypatch: pytest.MonkeyPatch, known: Any, visible: str | None, order: str | None, name: str
) -> None:
    """It tells instances apart that are told under their GPU's UUID; an index counts by an order."""
    driver()
    if visible is not None:
        monkeypatch.setenv(visible_devices.VARIABLE, visible)
    if order is not None:
        monkeypatch.setenv(visible_devices.ORDER, order)
    assert hardware_names.name_here(1, known) == name
