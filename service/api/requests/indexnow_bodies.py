"""Submissions by IndexNow as they were sent, of which the claim can be read alone.

The URLs of a submission are decoded only once its key is believed, because a stranger's megabyte
of JSON takes many in memory.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from service.api.schemas.protocols import IndexNowBody
from service.connectors.indexnow import MAX_URLS, Claim, Submission, claimed, submission
from service.model import lenient_json
from service.model.errors import MalformedBody
from service.model.lenient_json import Contradiction

REMEDY = "; send url and key, or POST host, key and urlList"
FIRST = re.compile(rb'\[\s*("(?:[^"\\]|\\.)*+")')
"""The first string of a JSON array."""
EMPTY = re.compile(rb"\[\s*\]")

DecodedT = TypeVar("DecodedT")


class Sent(NamedTuple):
    """A submission that is yet to be read."""

    claim: Callable[[], Claim]
    """Checks the key against the first URL; raises as `claimed`."""
    submission: Callable[[], Submission]
    """Checks and decodes all; raises as `submission`."""
    n_urls: int
    """Number of URLs as sent."""
    n_bytes: int


class Head(msgspec.Struct):
    """The fields of `IndexNowBody`, with the list of URLs as it was sent."""

    host: str
    key: str
    urlList: msgspec.Raw  # noqa: N815 - the protocol's name
    keyLocation: str | None = None  # noqa: N815


def one_url(url: str, key: str, key_location: str | None) -> Sent:
    """Return the submission of one URL by GET."""
    return Sent(
        partial(claimed, key, "url", url, None, key_location),
        partial(submission, key, [url], None, key_location),
        n_urls=1,
        n_bytes=len(url) + len(key) + len(key_location or ""),
    )


def many_urls(content: bytes) -> Sent:
    """Return the submission of a body.

    Raises
    ------
    MalformedBody
        The body is not IndexNow, or does not have 1 to `MAX_URLS` URLs.
    """
    content = content.removeprefix(BOM_UTF8)
    head = _decode(content, Head)
    n_urls = _n_strings(bytes(head.urlList))
    _check_number(n_urls)
    return Sent(partial(_claim, content), partial(_submission, content), n_urls, len(content))


def _claim(content: bytes) -> Claim:
    head = _decode(content, Head)
    first = FIRST.match(bytes(head.urlList))
    if first is None:
        raise MalformedBody("urlList must be a list of URLs, each a string")
    return claimed(head.key, "urlList[0]", _decode(first[1], str), head.host, head.keyLocation)


def _submission(content: bytes) -> Submission:
    body = _decode(content, IndexNowBody)
    if isinstance(contradiction := lenient_json.parse(content), Contradiction):
        raise MalformedBody(f"the body is not IndexNow: {contradiction}")
    _check_number(len(body.urlList))
    return submission(body.key, body.urlList, body.host, body.keyLocation)


def _n_strings(array: bytes) -> int:
    """Count the strings of a JSON array without decoding it; what is no array of strings has 1."""
    n_quotes = array.count(b'"') - array.count(b'\\"')
    return n_quotes // 2 if n_quotes or EMPTY.fullmatch(array) else 1


def _check_number(n_urls: int) -> None:
    if not 0 < n_urls <= MAX_URLS:
        raise MalformedBody(f"urlList has {n_urls} URLs; send 1 to {MAX_URLS}")


def _decode(content: bytes, kind: type[DecodedT]) -> DecodedT:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise MalformedBody(f"the body is not IndexNow: {str(error)[:300]}{REMEDY}") from error
