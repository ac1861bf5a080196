"""Passwords in texts that are shown: errors of commands, and lines of the log."""

import re

HIDDEN = "***"
USERINFO = re.compile(r"\b([a-z][a-z0-9+.-]*://[^\s:/?#@]*):\S*@", re.IGNORECASE)
"""Password before the last @ of a URL; it may contain any character but blanks."""
PARAMETER = re.compile(
    r"\b((?:ssl)?password|passwd|pwd|secret|token|api_?key|access_key)(\s*=\s*)[^\s&;,\"')]+",
    re.IGNORECASE,
)
"""Password in a query, or in a connection string of Postgres."""


def redacted(text: str) -> str:
    """Return a text without passwords of URLs and of connection strings.

    >>> redacted("cannot reach postgresql://me:p@ss/w@db.example:5432/x?password=y")
    'cannot reach postgresql://me:***@db.example:5432/x?password=***'
    >>> redacted("host=db password=y; see https://a.example:8000/x")
    'host=db password=***; see https://a.example:8000/x'
    """
    text = USERINFO.sub(rf"\1:{HIDDEN}@", text)
    return PARAMETER.sub(rf"\1\2{HIDDEN}", text)
