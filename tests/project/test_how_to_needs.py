"""The page on what needs you has every kind, and its commands run."""

import json
import re
from datetime import UTC, datetime

from support.live_server import running
from support.pages import DOCS, block, documents, shell

from service.api.examples import EXAMPLES
from service.status.needs import KINDS

PAGE = (DOCS / "how-to" / "needs-you.md").read_text()
SERVICE = "http://127.0.0.1:8000"


def test_each_kind_has_a_row_with_its_remedy():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == [kind.name for kind in KINDS]
    for kind, (_, _, remedies) in zip(KINDS, rows, strict=True):
        remedy = kind.remedy.format(remedy="", id="ID")
        assert remedy in remedies or kind.name.startswith("budget"), kind.name
    shown = {row[0]: row[2] for row in rows}
    assert "recrawl pages list host=HOST state=failing --limit 10" in shown["host_paused"]
    assert "recrawl worker" in shown["epoch_late"]


def test_the_need_of_the_page_is_that_of_the_reference():
    assert json.loads(block(PAGE, "a need").text) == EXAMPLES["status_answer"]["needs_you"][0]


def test_the_commands_of_the_page_show_the_state(sqlite_url, tmp_path):
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        live.register("https://example.com/")
        command, call = (block(PAGE, title).text for title in ("status", "numbers"))
        (shown,) = documents(shell(command, tmp_path, url=live.url))
        (answer,) = documents(shell(call.replace(SERVICE, live.url), tmp_path))
    assert shown.keys() - answer.keys() == {"address", "health"}
    assert (answer["n_pages"], answer["counted"], answer["needs_you"]) == (1, "now", [])
