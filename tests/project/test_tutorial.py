"""The tutorial, typed as it stands: a site, a service and a crawler on this machine."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.live_server import until
from support.pages import DOCS, block, blocks, documents, shell, terminal
from support.processes import free_port

from service.model.domain import PingReason

TUTORIAL = (DOCS / "tutorial.md").read_text()
SPAN = re.compile(r"[\d.,]+ (?:milliseconds|seconds?|minutes|hours|days)")


def on_free_ports() -> str:
    """Return the tutorial with ports that are free here."""
    site, service = free_port(), free_port()
    text = TUTORIAL.replace("recrawl serve\n", "recrawl serve --port 8000\n")
    return text.replace("8080", str(site)).replace("8000", str(service))


@pytest.mark.slow
def test_the_tutorial_ends_as_it_says(tmp_path):
    text = on_free_ports()
    (tmp_path / "crawler.py").write_text(block(text, "crawler.py").text)
    with ExitStack() as terminals:
        for title in ("terminal 1: the site", "terminal 2: Recrawl", "terminal 3: the crawler"):
            script = block(text, title).text.replace("python crawler.py", '"$PYTHON" crawler.py')
            log = terminals.enter_context(terminal(script, tmp_path))
        until(lambda: log.read_text().count("due http") > 40, "pages are crawled again and again")
        check_the_schedule(text, tmp_path)
        check_the_reason(text, tmp_path)
        about = documents(shell(block(text, "importance").text, tmp_path))[-1]["items"][0]
        assert about["importance"] == 1000.0
        assert about["crawl_rate"] > 250_000 / 3
        (pinged,) = documents(shell(block(text, "a ping").text, tmp_path))
        (decision,) = pinged["decisions"]
        assert decision["reason"] in {reason.value for reason in PingReason}


def check_the_schedule(text: str, directory: Path) -> None:
    """The page that changes has the highest rates."""
    (schedule,) = documents(shell(block(text, "the schedule").text, directory))
    rates = {
        page["url"].rstrip("/").rpartition("/")[2]: (page["change_rate"], page["crawl_rate"])
        for page in schedule["items"]
    }
    assert len(rates) == 3
    assert max(rates, key=lambda name: rates[name][0]) == "news"
    assert max(rates, key=lambda name: rates[name][1]) == "news"


def check_the_reason(text: str, directory: Path) -> None:
    """The sentence on the rate has the words that the tutorial shows, up to numbers and units."""
    reason = shell(block(text, "the reason").text, directory)
    (shown,) = [one.text for one in blocks(text, "text") if "Crawled" in one.text]
    begin = shown.index("Crawled")
    words = SPAN.sub("…", shown[begin:]).partition("67%")[0]
    assert words in SPAN.sub("…", reason), reason
