"""Fields of decoded items as columns; a field that an item leaves out has a value for "none"."""

import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from recrawl_client.wire.evidence import Observation, Ping
from recrawl_client.wire.pages import Page
from service.api.requests.rules import ReadUrl, read_lease, read_note
from service.core.weights import kept
from service.model.arrays import (
    INSTANT,
    NO_TIME,
    UNIX_ZERO,
    UNSPECIFIED,
    Codes,
    Floats,
    Instants,
    Ints,
    Numbers,
    Texts,
    plausible,
)
from service.model.errors import InvalidUrl
from service.model.outcomes import INVENTED, ROBOTS_DENIED
from service.model.urls import normalise

ETAG = re.compile(r"[\x20-\x7e]{1,512}")
"""ETags that a request may repeat."""


def page_ids(items: Sequence[Observation | Ping]) -> Ints:
    """Return the ids, 0 where there is none."""
    return column_of([item.page_id for item in items], 0, np.int64)


def column_of(values: list[Any], absent: float, kind: type[np.generic]) -> NDArray[Any]:
    """Return values of items, `absent` where an item has none."""
    return np.array([absent if value is UNSET else value for value in values], kind)


def read_urls(texts: list[str | UnsetType]) -> list[ReadUrl]:
    """Return the normal form or the fault of each URL; None where there is no URL."""
    if all_unset(texts):
        return [None] * len(texts)
    return [None if isinstance(text, UnsetType) else _normal(text) for text in texts]


def _normal(url: str) -> ReadUrl:
    try:
        return normalise(url)
    except InvalidUrl as error:
        return error


def instants(moments: list[datetime]) -> Instants:
    """Return instants to the microsecond."""
    since = [moment - UNIX_ZERO for moment in moments]
    seconds = np.array([86_400 * delta.days + delta.seconds for delta in since], np.int64)
    us = np.array([delta.microseconds for delta in since], np.int64)
    return (1_000_000 * seconds + us).view(INSTANT)


def stated_instants(moments: list[datetime | UnsetType]) -> Instants:
    """Return instants that items state, NaT where there is none."""
    n_unset = moments.count(UNSET)
    if n_unset == len(moments):
        return np.full(len(moments), NO_TIME)
    if not n_unset:
        return instants(cast("list[datetime]", moments))
    stated = instants([UNIX_ZERO if isinstance(at, UnsetType) else at for at in moments])
    stated[[at is UNSET for at in moments]] = NO_TIME
    return stated


def dates_of(moments: list[datetime | UnsetType]) -> Instants:
    """Return dates that sites state, NaT where there is none or where it is implausible."""
    if all_unset(moments):
        return np.full(len(moments), NO_TIME)
    return plausible(stated_instants(moments))


def texts_of(texts: list[str | UnsetType]) -> Texts:
    """Return texts, "" where there is none; None without any."""
    if all_unset(texts):
        return None
    return np.array(["" if text is UNSET else text for text in texts], object)


def notes_of(items: Sequence[Observation] | Sequence[Page]) -> list[str | UnsetType]:
    """Return the JSON of each note; an empty list if no item has a note."""
    notes = [item.note for item in items]
    if all_unset(notes):
        return []
    return [UNSET if note is UNSET else read_note(note) for note in notes]


def statuses_of(items: Sequence[Observation]) -> Codes:
    """Return statuses of three digits, or `ROBOTS_DENIED`; a site may send any number."""
    stated = column_of([item.status for item in items], UNSPECIFIED, np.int64)
    statuses: Codes = np.minimum(stated, INVENTED).astype(np.int16)
    denied = [item.robots_denied for item in items]
    if True in denied:
        statuses[[each is True for each in denied]] = ROBOTS_DENIED
    return statuses


def etags_of(etags: list[str | UnsetType]) -> Texts:
    """Return the ETags that a request may repeat, "" for any other."""
    if all_unset(etags):
        return None
    return texts_of(
        [etag if etag is not UNSET and ETAG.fullmatch(etag) else UNSET for etag in etags]
    )


def all_unset(values: Sequence[Any]) -> bool:
    """Return whether no item has a value; four times as fast as a generator for `all`."""
    return values.count(UNSET) == len(values)


def codes_of(codes: list[Any]) -> Codes:
    """Return codes, `UNSPECIFIED` where there is none."""
    return column_of(codes, UNSPECIFIED, np.int16)


def numbers_of(numbers: list[Any]) -> Floats:
    """Return numbers, NaN where there is none."""
    return column_of(numbers, np.nan, np.float64)


def optional_numbers(numbers: list[Any]) -> Numbers:
    """Return numbers, NaN where there is none; None without any."""
    return None if all_unset(numbers) else numbers_of(numbers)


def weights_of(weights: list[Any]) -> Numbers:
    """Return weights of changes as they are kept (`core.weights`); None without one below 1."""
    stated = optional_numbers(weights)
    return None if stated is None else kept(stated)


def digest_of(digest: Any) -> int:
    """Return 64 bits of the caller's digest; two versions of one page collide once in 2^64.

    0 stands for none, and for what is no valid Unicode.
    """
    try:
        hashed = blake2b(digest.encode(), digest_size=8).digest()
    except UnicodeEncodeError:
        return 0
    return int.from_bytes(hashed, "big", signed=True) or 1


def leases_of(items: Sequence[Observation], page_id: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the leased page and token of each item, 0 where there is none, and its own page."""
    if all_unset([item.lease for item in items]):
        none = np.zeros(len(items), np.int64)
        return none, none, page_id
    pairs = [(0, 0) if item.lease is UNSET else read_lease(item.lease) for item in items]
    leased, token = np.array(pairs, np.int64).T
    by_lease = (page_id == 0) & np.array([item.url is UNSET for item in items], np.bool_)
    return leased, token, np.where(by_lease, leased, page_id)
