"""Filters of pages, which the calls on many pages share as parameters of the query."""

import inspect
import re
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from fastapi import Query

from recrawl_client.wire.listing import StateFilter
from service.api.requests.rules import check_zone
from service.leases.listing import Selection
from service.model.domain import Observability
from service.model.errors import InvalidField, InvalidUrl
from service.model.listing import PageFilter
from service.model.urls import normalise, normalise_host

TAG = "^[a-z0-9][a-z0-9._:-]{0,49}$"
MOST_RATE = 1e9


def _rate(description: str) -> Any:
    return Query(ge=0, le=MOST_RATE, description=description)


class PageParameters(NamedTuple):
    """The parameters that select pages; a page must match all of them."""

    host: Annotated[str | None, Query(description="Name of the host of the pages")] = None
    url_prefix: Annotated[
        str | None,
        Query(
            description="Start of the URLs, with the whole host",
            examples=["https://example.com/news/"],
        ),
    ] = None
    tag: Annotated[
        str | None,
        Query(
            pattern=TAG,
            description="Tag of the pages: 1 to 50 lower-case letters, digits and . _ : -",
            examples=["news"],
        ),
    ] = None
    state: Annotated[
        StateFilter | None,
        Query(
            description="State of the pages. Of any state are: `overdue` pages, due before now; "
            "`moved` pages, redirected for good at their last crawl; `refused` pages, whose "
            "last crawl the site or robots.txt refused; `unfinished` pages, whose last lease ended "
            "without a report; `set_aside` pages, after three such leases in a row"
        ),
    ] = None
    observability: Annotated[
        Literal["incomplete", "complete", "auto"] | None,
        Query(description="Source of changes of the pages"),
    ] = None
    change_rate_from: Annotated[
        float | None, _rate("Lowest change rate in the schedule in force, 1/day")
    ] = None
    change_rate_to: Annotated[
        float | None, _rate("Highest change rate in the schedule in force, 1/day")
    ] = None
    crawl_rate_from: Annotated[
        float | None, _rate("Lowest crawl rate in the schedule in force, 1/day")
    ] = None
    crawl_rate_to: Annotated[
        float | None, _rate("Highest crawl rate in the schedule in force, 1/day")
    ] = None
    changed_since: Annotated[
        datetime | None,
        Query(
            description="Instant of the earliest crawl that found the page changed, RFC 3339 with "
            "a zone; the log must still have the crawl"
        ),
    ] = None

    def selection(self) -> Selection:
        """Return the selected pages; raise `InvalidField` for values that contradict each other."""
        check_zone("changed_since", self.changed_since)
        for rate in ("change_rate", "crawl_rate"):
            low, high = getattr(self, f"{rate}_from"), getattr(self, f"{rate}_to")
            if low is not None and high is not None and low > high:
                detail = f"{rate}_from {low:g} lies above {rate}_to {high:g}; swap them"
                raise InvalidField(f"{rate}_from", detail)
        fields = self._asdict()
        state, watched = fields.pop("state"), fields.pop("observability")
        fields |= {"observability": Observability[watched] if watched else None}
        return Selection(PageFilter(**{**fields, **self._place()}), state)

    def _place(self) -> dict[str, str | None]:
        """Return the host and the prefix in the form that normal URLs have."""
        host = None if self.host is None else normalise_host(self.host)
        if self.url_prefix is None:
            return {"host": host}
        if re.search(r"#|^[^?]*[/\\](\.|%2e){1,2}$", self.url_prefix, re.IGNORECASE):
            detail = "url_prefix has a #, or ends in . or .., unlike normal URLs; leave it out"
            raise InvalidField("url_prefix", detail)
        try:
            prefix = normalise(self.url_prefix)
        except InvalidUrl as error:
            detail = f"{error.detail}; url_prefix needs a scheme and a whole host"
            raise InvalidField("url_prefix", detail) from error
        if host not in (None, prefix.host):
            detail = f"url_prefix has the host {prefix.host}, not {host}; leave host out"
            raise InvalidField("url_prefix", detail)
        return {"host": prefix.host, "url_prefix": prefix.url}


HINTS = get_type_hints(PageParameters, include_extras=True)


def with_filters(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return an endpoint with the parameters of `PageParameters` in place of its `filters`."""

    @wraps(endpoint)
    def filtered(**values: Any) -> Any:
        fields = {name: values.pop(name) for name in HINTS if name in values}
        return endpoint(filters=PageParameters(**fields), **values)

    own = {n: p for n, p in inspect.signature(endpoint).parameters.items() if n != "filters"}
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = {
        name: inspect.Parameter(
            name, keyword, default=PageParameters._field_defaults[name], annotation=hint
        )
        for name, hint in HINTS.items()
    }
    parameters = [p.replace(kind=keyword) for p in own.values()] + list(more.values())
    filtered.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    hints = get_type_hints(endpoint, include_extras=True)
    filtered.__annotations__ = {**{n: hints[n] for n in own}, **HINTS}
    return filtered
