"""The command line, called in this process as a shell calls it."""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
import structlog

from service.cli import main


class Ended(NamedTuple):
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    def refusal(self) -> str:
        """Return the one-sentence error of a refused command."""
        assert self.status == 2
        assert self.out == ""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("recrawl: ")
        return lines[0]


@pytest.fixture
def recrawl(monkeypatch, capsys, tmp_path) -> Callable[..., Ended]:
    """Return a function that runs a command with settings by name, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, **settings: object) -> Ended:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["recrawl", *map(str, arguments)])
            for name, value in settings.items():
                patch.setitem(os.environ, f"RECRAWL_{name}".upper(), str(value))
            status = 0
            try:
                main()
            except SystemExit as end:
                status = int(end.code or 0)
            finally:
                structlog.reset_defaults()
        out, err = capsys.readouterr()
        return Ended(status, out, err)

    return run
