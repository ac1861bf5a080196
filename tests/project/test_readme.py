"""What the README shows is what the service does."""

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.server import running
from service.api.service import open_service
from service.runtime.settings import Settings, read_settings

README = (Path(__file__).parents[2] / "README.md").read_text()


def shell_blocks() -> list[tuple[str, Any]]:
    """The quickstart's blocks of curl commands, each with the answer shown below it."""
    quickstart = README.split("## Quickstart")[1].split("\n## ")[0]
    found = re.findall(r"```sh\n(.*?)```(?:\s*```json\n(.*?)```)?", quickstart, re.DOTALL)
    return [(block, json.loads(shown) if shown else None) for block, shown in found]


def curl(client: httpx.Client, command: str) -> httpx.Response:
    """Do what a curl command of the README does."""
    words = shlex.split(command)
    assert words.pop(0) == "curl"
    method, content, headers = "GET", None, {}
    while len(words) > 1:
        option = words.pop(0)
        if option == "--compressed":
            continue
        value = words.pop(0)
        if option == "-H":
            headers |= dict([value.split(": ")])
        elif option == "--json":
            method, content = "POST", value
        else:
            assert option == "-X", option
            method = value
    url = words[0].removeprefix("http://127.0.0.1:8000")
    if content:
        headers["Content-Type"] = "application/json"
    return client.request(method, url, content=content, headers=headers)


def shape(value: Any) -> Any:
    """Field names and kinds of values, without the values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


def test_the_quickstart_gives_the_answers_it_shows(tmp_path: Path) -> None:
    service = open_service(read_settings(database_url=f"sqlite:///{tmp_path}/readme.db"))
    commands = 0
    with running(service) as url, httpx.Client(base_url=url, timeout=180) as client:
        for block, shown in shell_blocks():
            if "curl" not in block:
                continue
            for command in re.findall(r"^curl .*?(?=^curl|\Z)", block, re.DOTALL | re.MULTILINE):
                answer = curl(client, command.replace("\\\n", " "))
                commands += 1
                assert answer.is_success or answer.status_code == 304, answer.text
                if answer.status_code == 202:
                    wait_for_epoch(client, answer.json()["epoch"])
            if shown is not None:
                assert shape(answer.json()) == shape(shown)
                if "accepted" in shown:
                    assert answer.json() == shown
    assert commands == 10


def wait_for_epoch(client: httpx.Client, epoch: int) -> None:
    for _ in range(5_000):
        if client.get(f"/epochs/{epoch}").json()["status"] == "published":
            return
        time.sleep(0.02)
    pytest.fail("the epoch was not published")


def test_every_setting_stands_in_the_table() -> None:
    table = README.split("### Settings")[1].split("\n## ")[0]
    told = {name.lower() for name in re.findall(r"^\| `([A-Z_]+)` \|", table, re.MULTILINE)}
    assert told == set(Settings.model_fields)


def test_every_file_linked_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    missing = [link for link in links if not (Path(__file__).parents[2] / link).exists()]
    assert not missing
