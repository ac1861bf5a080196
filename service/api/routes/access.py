"""API keys and the audit."""

import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import AwareDatetime

from recrawl_client.wire.access import (
    AuditAnswer,
    AuditItem,
    CreatedKey,
    KeyBody,
    KeyItem,
    KeysAnswer,
    RotationBody,
)
from service.access import keys
from service.access.keys import KeySettings, NewKey
from service.api import openapi
from service.api.admission import TheActor
from service.api.assembly import Service, TheBody, TheService
from service.api.cursors import AuditPlace, CursorParameter, KeysPlace, decode_cursor, limit_of
from service.api.examples import EXAMPLES
from service.api.requests.items import decode_object
from service.api.responses.encode import answer, answer_part, shared
from service.api.route import GUARDED, DirectRoute
from service.model.access import ApiKey, AuditFilter, Role
from service.model.errors import OUTAGES, Forbidden

router = APIRouter(tags=["access"], route_class=DirectRoute, dependencies=GUARDED)

KeyPath = Annotated[
    str, Path(pattern="^[0-9a-f]{10}$", description="Id of a key: the part after rcr_")
]
LINE = r"^[^\x00-\x1f\x7f]{1,2000}$"
"""Pattern of a text without control characters."""
Limit = Annotated[int, limit_of("items of a part")]
Moment = Annotated[AwareDatetime | None, Query(description="An RFC 3339 instant with a zone")]


@router.post(
    "/keys",
    status_code=201,
    responses=openapi.answers(CreatedKey, EXAMPLES["created_key"], *openapi.WRITES, status=201),
    openapi_extra=openapi.request_body(KeyBody, EXAMPLES["key"], batch=False),
)
def post_key(service: TheService, actor: TheActor, body: TheBody) -> Response:
    """Create a key.

    The answer shows the key once; the service keeps its hash. All servers accept the key within
    seconds. The first key of a service comes from `RECRAWL_API_KEYS` or `recrawl keys create`.
    """
    wish = decode_object(body, KeyBody)
    if service.gate.open:
        raise Forbidden(
            "this service has no key, so everybody could create one and lock out the others; "
            "create the first key by `recrawl keys create`, or set RECRAWL_API_KEYS"
        )
    settings = KeySettings(
        name=wish.name,
        role=Role[wish.role],
        expires_at=wish.expires_at or None,
        items_per_s=wish.items_per_s or None,
        hosts=tuple(wish.hosts or ()),
        url_prefixes=tuple(wish.url_prefixes or ()),
    )
    with service.store.begin() as tx:
        new = keys.create_key(tx, actor, settings, secrets.token_bytes)
    return _created(service, new)


@router.get(
    "/keys",
    responses=openapi.answers(KeysAnswer, EXAMPLES["keys_answer"], 422, headers=openapi.LINK),
)
def list_keys(
    request: Request, service: TheService, cursor: CursorParameter = None, limit: Limit = 100
) -> Response:
    """List keys.

    Revoked and expired keys stay in the list. Keys of `RECRAWL_API_KEYS` are not in it.
    """
    after = "" if cursor is None else decode_cursor(cursor, KeysPlace, "/keys").after
    with service.store.begin(write=False) as tx:
        listed = tx.keys(after, limit)
    place = KeysPlace(listed[-1].key_id) if len(listed) == limit else None
    return answer_part(request, KeysAnswer, [KeyItem(**shown(key)) for key in listed], place)


@router.get("/keys/{key_id}", responses=openapi.answers(KeyItem, EXAMPLES["key_item"], 404, 422))
def get_key(service: TheService, key_id: KeyPath) -> Response:
    """Show one key without its secret."""
    with service.store.begin(write=False) as tx:
        return answer(KeyItem(**shown(tx.key(key_id))))


@router.delete("/keys/{key_id}", **openapi.no_content(404, 422))
def delete_key(service: TheService, actor: TheActor, key_id: KeyPath) -> Response:
    """Revoke a key.

    Every server refuses the key within 5 s. The key stays in the list and in the audit.
    """
    with service.store.begin() as tx:
        keys.revoke_key(tx, actor, key_id)
    _refresh(service)
    return Response(status_code=204)


@router.post(
    "/keys/{key_id}/rotation",
    status_code=201,
    responses=openapi.answers(
        CreatedKey, EXAMPLES["created_key"], 404, 409, *openapi.WRITES, status=201
    ),
    openapi_extra=openapi.request_body(RotationBody, EXAMPLES["rotation"], batch=False),
)
def rotate_key(service: TheService, actor: TheActor, key_id: KeyPath, body: TheBody) -> Response:
    """Rotate a key.

    The answer shows a new key with the same name, role and limits. The old key works for `grace_s`
    more. A key with an expiry passes its lifetime on.
    """
    grace = timedelta(seconds=decode_object(body, RotationBody).grace_s)
    with service.store.begin() as tx:
        new = keys.rotate_key(tx, actor, key_id, grace, secrets.token_bytes)
    return _created(service, new)


@router.get(
    "/audit",
    responses=openapi.answers(AuditAnswer, EXAMPLES["audit_answer"], 422, headers=openapi.LINK),
)
def list_audit(
    request: Request,
    service: TheService,
    cursor: CursorParameter = None,
    limit: Limit = 100,
    key: Annotated[
        str | None,
        Query(pattern=LINE, description="Author: the id of a key, or another name of an author"),
    ] = None,
    act: Annotated[
        str | None, Query(pattern=LINE, description="Kind of act, such as host.change")
    ] = None,
    name: Annotated[
        str | None,
        Query(alias="object", pattern=LINE, description="Name of the object, such as a host"),
    ] = None,
    since: Moment = None,
    until: Moment = None,
) -> Response:
    """List administrative acts, newest first.

    Acts on keys, hosts, groups, pages, epochs and subscriptions leave an entry. `until` is the
    first instant after the range.
    """
    before = None if cursor is None else decode_cursor(cursor, AuditPlace, "/audit").before
    only = AuditFilter(key, act, name, since, until)
    with service.store.begin(write=False) as tx:
        listed = tx.audit(before, limit, only)
    place = AuditPlace(listed[-1].entry) if len(listed) == limit else None
    items = [AuditItem(**shared(AuditItem, entry)) for entry in listed]
    return answer_part(request, AuditAnswer, items, place)


def shown(key: ApiKey) -> dict[str, Any]:
    """Return the fields of `KeyItem`."""
    fields = shared(KeyItem, key)
    lists = {name: list(fields[name]) for name in ("hosts", "url_prefixes")}
    return {**fields, **lists, "role": key.role.name}


def _refresh(service: Service) -> None:
    """Read the keys at once; where the database is away, the thread of the keys will."""
    with suppress(*OUTAGES):
        service.gate.ring.refresh()


def _created(service: Service, new: NewKey) -> Response:
    _refresh(service)
    body = CreatedKey(**shown(new.key), key=new.text)
    return answer(body, 201, {"Location": f"/keys/{new.key.key_id}", "Cache-Control": "no-store"})
