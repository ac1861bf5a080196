"""Chromium, from apt, driven by Playwright, and everything that a page should not do."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, sync_playwright

from support import apt

ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PATIENCE_S = 120.0
"""Maximum wait for a page on a busy machine, seconds."""


def program() -> str:
    """Return Chromium, installed where apt-get may."""
    return apt.program("chromium", "chromium")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a browser until the block ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=[*ARGUMENTS])
        yield browser
        browser.close()


class Watched:
    """A visitor's window, and everything that it should not have done."""

    def __init__(self, browser: Browser, url: str, **options: object) -> None:
        self.context: BrowserContext = browser.new_context(
            base_url=url,
            viewport={"width": 1280, "height": 900},
            **options,  # type: ignore[arg-type]
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_S * 1_000)
        self.faults: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", lambda request: self._judge(request.url, url))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:  # violations of the policy are errors
            self.faults.append(f"{message.type}: {message.text}")

    def _judge(self, address: str, url: str) -> None:
        if not address.startswith((url, "data:")):
            self.faults.append(f"request to {address}")

    def open(self, path: str) -> None:
        """Visit a page, and wait until nothing is loading."""
        self.page.goto(path)
        self.page.wait_for_load_state("networkidle")

    def sign_in(self, key: str) -> None:
        """Sign in by the form."""
        self.open("/console")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Sign in").press("Enter")
        self.page.wait_for_url(lambda url: "/sign-in?" not in url)
        if not self.page.url.endswith("/console"):
            raise PermissionError(self.page.locator("main").inner_text())
