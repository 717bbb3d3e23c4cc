"""A headless Chromium of this machine, driven by playwright; tests without one are skipped, and say why."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
GIVEN = "DDPCHECK_CHROMIUM"
"""In the environment: the browser's path, where it has none of the usual names."""


def missing() -> str:
    """Why there is no browser to try a page in; empty where there is one."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed (nox -s page installs it)"
    if path() is None:
        return f"there is no Chromium on this machine (apt-get install chromium, or set {GIVEN})"
    return ""


def path() -> str | None:
    """The browser's file."""
    given = os.environ.get(GIVEN)
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextlib.contextmanager
def browsing() -> Iterator[Any]:
    """A browser; each test opens pages of its own in it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path(), args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Opened:
    """A page in a window of its own, with whatever the browser had to say of it."""

    def __init__(self, browser: Any, file: Path, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.said.append(request.url) if request.url != file.as_uri() else None)
        self.page.goto(file.as_uri())

    def ready(self) -> Opened:
        """Once its timeline is there."""
        self.page.wait_for_selector("#lanes.matched", timeout=60_000)
        return self

    def view(self) -> tuple[float, float]:
        """What the timeline shows: from when to when."""
        found = self.page.evaluate("[ddpcheckTimeline.from, ddpcheckTimeline.to]")
        return found[0], found[1]

    def about(self) -> str:
        """What stands below the timeline."""
        return str(self.page.locator(".about").inner_text())
