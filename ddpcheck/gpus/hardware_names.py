"""What names a GPU itself, or the instance of one, under whatever number a process sees it.

The driver is asked first. Of an instance of a GPU (MIG) it tells the instance's own UUID, where torch, and older
functions of the driver, may tell that of the whole GPU: instances told so would be taken for one device.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import uuid
from typing import Any

from ddpcheck.gpus import visible_devices


def name_of(index: int, known: Any = None) -> str:
    """``GPU-<uuid>`` or ``MIG-<uuid>``; a place on the bus where there is no UUID; empty where nothing is told.

    ``known`` are torch's properties of it, if it has any. CUDA is in use in this process, or nothing is told by the
    driver: it is not made to begin.
    """
    found = _told_by_driver(index)
    told = str(getattr(known, "uuid", None) or "")
    if not found and told.strip("-0"):  # nothing but noughts is what is there before it is filled in
        found = told if told.startswith(("GPU-", "MIG-")) else f"GPU-{told}"
    return found or _place(index)


def name_here(index: int, known: Any = None) -> str:
    """The same for a process that uses it: by what CUDA_VISIBLE_DEVICES calls it where nothing better is known.

    An index is no name of the hardware, and is only as good as the order that it counts by: that is told with it.
    """
    found = name_of(index, known)
    listed = visible_devices.tokens(os.environ.get(visible_devices.VARIABLE, ""), index + 1)
    token = listed[index] if index < len(listed) else ""
    if token.startswith("MIG-") and not found.startswith("MIG-"):
        return token
    if found or not token.isdigit():
        return found or token
    order = os.environ.get(visible_devices.ORDER, "")
    return f"cuda:{token} by {order}" if order else f"cuda:{token}"


def _told_by_driver(index: int) -> str:
    # One call each: a driver may have the older function alone.
    own, whole = _uuid(index, "cuDeviceGetUuid_v2"), _uuid(index, "cuDeviceGetUuid")
    if own and whole and own != whole:
        return f"MIG-{own}"
    return f"GPU-{own or whole}" if own or whole else ""


def _uuid(index: int, function: str) -> str:
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGet(ctypes.byref(device), index) == 0 and getattr(driver, function)(raw, device) == 0:
            return str(uuid.UUID(bytes=bytes(raw))) if any(raw) else ""
    return ""


def _place(index: int) -> str:
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        device, text = ctypes.c_int(), ctypes.create_string_buffer(32)
        if driver.cuDeviceGet(ctypes.byref(device), index) == 0 and driver.cuDeviceGetPCIBusId(text, 32, device) == 0:
            return text.value.decode().lower()
    return ""
