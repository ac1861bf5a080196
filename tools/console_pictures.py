"""Take pictures of each view of the console, in light and dark, and of the overview on a telephone.

    python tools/console_pictures.py [--output docs/figures/console] [--pages 1000]

The demo fills a service; a webhook, keys, leases and a paused host are added over HTTP. Chromium
(`apt-get install chromium`) shows each view, and the command fails if a view reports an error.
"""

import argparse
import base64
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from service.access.keys import KeySettings, create_key
from service.model.access import RECRAWL, Role
from service.storage import open_store

OUTPUT = Path("docs/figures/console")
SCHEMES = ("light", "dark")
WIDTH, HIGHEST = 1_180, 1_500
"""Width and maximum height of what a picture shows, CSS pixels."""
LISTS = dict.fromkeys(("pages", "epochs", "changes", "access"), 900)
"""Maximum heights of long lists."""
NARROW = 390
"""Width of a telephone, CSS pixels."""
SCALE = 0.7
"""Pixels of a picture for each CSS pixel."""
QUALITY = 45
"""Quality of WebP, percent."""
KEYS_WITHIN_S = 2.0
"""Time within which the service reads a key that another process made, seconds."""
STATE_WIDTH = 3
"""Width of the state of the demo's estimator, numbers."""


@contextmanager
def demo(pages: int) -> Iterator[tuple[str, str]]:
    """Run the demo until the block ends; yield the addresses of its service and its database."""
    words = [sys.executable, "-m", "service", "demo", "--serve", "--pages", str(pages)]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(  # noqa: S603 - this program
            words,
            cwd=folder,
            env=os.environ | {"TMPDIR": folder},
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                lines = iter(process.stderr.readline, "") if process.stderr else iter(())
                matches = (re.search(r"console is at (http://[^/]+)/", line) for line in lines)
                base = next(match.group(1) for match in matches if match)
                (database,) = Path(folder).glob("recrawl-demo-*/demo.db")
                yield base, f"sqlite:///{database}"
            finally:
                process.send_signal(signal.SIGINT)


def first_key(database: str, at: datetime) -> str:
    """Return a new key of an administrator, made at an instant of the demo's clock."""
    store = open_store(database, STATE_WIDTH)
    store.clock = lambda: at  # type: ignore[attr-defined]
    try:
        with store.begin() as tx:
            settings = KeySettings("operators", Role.admin)
            return create_key(tx, RECRAWL, settings, secrets.token_bytes).text
    finally:
        store.close()


def dress(base: str, database: str) -> tuple[str, dict[str, str]]:
    """Add what the demo lacks; return a key, and the address of each view by its name."""
    with httpx.Client(base_url=base, timeout=60) as client:
        pages = client.get("/pages", params={"limit": 400}).raise_for_status().json()["items"]
        changing = max(pages, key=lambda page: (page["n_changes"], -page["page_id"]))
        host = httpx.URL(changing["url"]).host
        epoch = client.get("/epochs").raise_for_status().json()["items"][0]
        at = datetime.fromisoformat(epoch["finished_at"])
        until = at + timedelta(days=8)
        others = [f"https://{name}.example/{page}" for name in ("news", "shop") for page in "abcd"]
        client.post("/pages", json=[{"url": url} for url in others]).raise_for_status()
        client.put("/hosts/shop.example", json={"blocked_until": until.isoformat()})
        free = {"min_delay_s": 0, "max_concurrency": 20}
        client.put(f"/hosts/{host}", json=free).raise_for_status()
        due = {"page_ids": [page["page_id"] for page in pages[:12]]}
        client.post("/pages/recrawl", json=due).raise_for_status()
        client.post("/webhooks", json={"url": "https://93.184.216.34/changes"}).raise_for_status()
        for worker in ("crawler-1", "crawler-2"):
            client.post("/leases", json={"worker": worker, "count": 6}).raise_for_status()
        key = first_key(database, at)
        client.headers["Authorization"] = f"Bearer {key}"
        time.sleep(KEYS_WITHIN_S)
        for name, role in (("dashboards", "read"), ("crawlers", "crawl")):
            client.post("/keys", json={"name": name, "role": role}).raise_for_status()
        hook = client.get("/webhooks").raise_for_status().json()["items"][0]["id"]
    return key, {
        "overview": "?range=30d",
        "pages": "/pages",
        "page": f"/pages/{changing['page_id']}",
        "hosts": "/hosts",
        "host": f"/hosts/{host}",
        "epochs": "/epochs",
        "epoch": f"/epochs/{epoch['epoch']}",
        "budget": f"/plan?bandwidth={1.5 * epoch['bandwidth']:.6g}",
        "leases": "/leases",
        "changes": "/changes",
        "webhook": f"/webhooks/{hook}",
        "access": "/access",
    }


def take(page: Page, path: Path, highest: int = HIGHEST, width: int = WIDTH) -> None:
    """Write a picture of the whole page, cut at a height."""
    height = min(int(page.evaluate("document.documentElement.scrollHeight")), highest)
    session = page.context.new_cdp_session(page)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": SCALE}
    options = {"format": "webp", "quality": QUALITY, "clip": clip, "captureBeyondViewport": True}
    picture = session.send("Page.captureScreenshot", options)
    path.write_bytes(base64.b64decode(picture["data"]))


def visit(browser: Browser, base: str, key: str, views: dict[str, str], output: Path) -> list[str]:
    """Take all pictures; return the errors that the browser reports."""
    errors: list[str] = []
    for scheme in SCHEMES:
        context = browser.new_context(
            base_url=base, color_scheme=scheme, viewport={"width": WIDTH, "height": 760}
        )
        page = context.new_page()
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto("/console/sign-in", wait_until="networkidle")
        take(page, output / f"sign-in-{scheme}.webp")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/console")
        for name, path in views.items():
            page.goto(f"/console{path}", wait_until="networkidle")
            take(page, output / f"{name}-{scheme}.webp", LISTS.get(name, HIGHEST))
        if scheme == SCHEMES[0]:
            page.set_viewport_size({"width": NARROW, "height": 760})
            page.goto(f"/console{views['overview']}", wait_until="networkidle")
            take(page, output / "overview-narrow.webp", width=NARROW)
        context.close()
    return errors


def main() -> int:
    """Run the demo, take the pictures, and print their size."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--output", type=Path, default=OUTPUT)
    options.add_argument("--pages", type=int, default=1_000, help="number of pages of the demo")
    arguments = options.parse_args()
    program = shutil.which("chromium")
    if program is None:
        print("no chromium; apt-get install chromium", file=sys.stderr)
        return 1
    arguments.output.mkdir(parents=True, exist_ok=True)
    with demo(arguments.pages) as (base, database), sync_playwright() as playwright:
        key, views = dress(base, database)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        errors = visit(browser, base, key, views, arguments.output)
        browser.close()
    pictures = sorted(arguments.output.glob("*.webp"))
    print(f"{len(pictures)} pictures, {sum(p.stat().st_size for p in pictures) / 1e3:.0f} kB")
    print("\n".join(errors), file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
