"""Sitemaps: a site's own list of its pages and their changes."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from recrawl_client.wire.common import Counts
from recrawl_client.wire.evidence import SitemapRead
from service.api.guards import GUARDED
from service.api.requests.bodies import read_document
from service.api.requests.sitemaps import DocumentOptions, Reader
from service.api.responses.counts import refuse_empty
from service.api.responses.encode import answer
from service.api.route import DirectRoute
from service.api.routes.observations import Register
from service.api.schemas import examples, openapi
from service.api.service import TheService
from service.connectors.sitemap import Sitemap
from service.model.urls import normalise

router = APIRouter(tags=["evidence"], route_class=DirectRoute, dependencies=GUARDED)


@router.post(
    "/sitemaps",
    operation_id="post_sitemap",
    responses=openapi.answers(SitemapRead, examples.SITEMAP_ANSWER, *openapi.WRITES),
    openapi_extra=openapi.document_body(examples.SITEMAP),
)
def post_sitemap(
    service: TheService,
    content: Annotated[bytes, Depends(read_document)],
    url: Annotated[
        str,
        Query(
            description="Where the document was fetched from; it is not fetched again",
            examples=[examples.SITEMAP_URL],
        ),
    ],
    cross_host: Annotated[
        bool, Query(description="Take entries of other hosts than that of `url` too")
    ] = False,
    register: Register = True,
) -> Response:
    """Pass on a sitemap as it was fetched: urlset, index or text, plain or gzip.

    New pages are registered; a `lastmod` newer than the page's last change notice is a change
    notice of its time, trusted as far as the page's own crawls bear its notices out. An index is
    answered with `children`, the sitemaps to fetch and send next: Recrawl fetches nothing itself.
    Sending a document again changes nothing. An entry of another host than that of `url` is
    rejected, as the protocol demands, unless `cross_host=true`.

    Of a document that breaks off, the entries before the break are taken, and `warnings` says so.
    A `lastmod` may have any form of W3C dates; one that cannot be read, or lies in the future, is
    left out of account.
    """
    origin = DocumentOptions(normalise(url).host, cross_host, register)
    result = Reader(service, origin).read(Sitemap(content, service.max_body_bytes))
    refuse_empty({name: getattr(result, name) for name in Counts.__struct_fields__})
    return answer(result)
