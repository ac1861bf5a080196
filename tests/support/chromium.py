"""Chromium, from apt, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser

from benchmarks.console import browser as console_browser
from benchmarks.console.browser import Watched
from support.image import finish

__all__ = ["Watched", "chromium"]


def program() -> str:
    """Return Chromium, installed where apt-get may."""
    found = shutil.which("chromium")
    if found is None:
        finish(["apt-get", "update"])
        finish(["apt-get", "install", "--yes", "--no-install-recommends", "chromium"])
    return found or "/usr/bin/chromium"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser until the block ends."""
    with console_browser.chromium(program()) as browser:
        yield browser
