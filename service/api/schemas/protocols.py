"""Bodies that the client does not use: IndexNow and the health checks."""

from typing import Literal

from msgspec import Struct


class IndexNowBody(Struct, frozen=True, kw_only=True):
    """URLs of one host that have changed, as the IndexNow protocol names the fields."""

    host: str
    key: str
    urlList: list[str]  # noqa: N815 - the protocol's name
    keyLocation: str | None = None  # noqa: N815


class IndexNowAnswer(Struct, frozen=True, kw_only=True):
    """What became of a submission by IndexNow."""

    status: Literal["taken", "pending"]
    """pending: the site's key is being looked at; the URLs are taken once it has been found."""
    n_urls: int
    """Distinct URLs; while pending the number of URLs as sent."""
    n_taken: int
    """Distinct URLs taken as change notices of this moment."""


class Health(Struct, frozen=True, kw_only=True):
    """The process is alive, or ready."""

    status: Literal["ok"]
    version: str
