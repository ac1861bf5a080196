"""Logs: one JSON object a line, and never a reason to fail."""

import json
import sys
from io import TextIOWrapper
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from service.runtime.bootstrap import configure_logging, log_unused_proxies
from service.runtime.settings import Settings


def test_a_line_is_a_json_object_on_standard_error(capsys):
    configure_logging("info")
    structlog.get_logger().info("epoch published", epoch=3)
    structlog.get_logger().debug("not at this level")
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert (said["event"], said["epoch"], said["level"]) == ("epoch published", 3, "info")


def test_a_line_on_a_terminal_is_for_people(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure_logging("info")
    url = "postgresql://me:secret@h/x"
    structlog.get_logger().info("epoch published", epoch=3, of=url)
    (line,) = capsys.readouterr().err.splitlines()
    assert "[info     ] epoch published" in line
    assert "epoch=3" in line
    assert "{" not in line
    assert "secret" not in line


def test_a_log_that_cannot_be_written_fails_nobody(monkeypatch):
    with Path("/dev/full").open("wb", buffering=0) as full:
        stream = TextIOWrapper(full, write_through=True)
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging("info")
        structlog.get_logger().warning("store trouble")
        with pytest.raises(OSError, match="No space"):
            full.write(b"it is full indeed")


def test_a_log_whose_stream_is_closed_fails_nobody(monkeypatch, tmp_path):
    stream = (tmp_path / "log").open("w")
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging("info")
    stream.close()
    structlog.get_logger().warning("store trouble")


@pytest.mark.parametrize("guards", [False, True])
def test_a_proxy_that_is_not_used_has_one_line(monkeypatch, guards):
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy.example:3128")
    with capture_logs() as logs:
        log_unused_proxies(Settings(proxy_guards=guards))
    assert [line["event"] for line in logs] == ([] if guards else ["a proxy is not used"])
    assert "secret" not in str(logs)
