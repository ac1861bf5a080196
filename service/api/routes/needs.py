"""Needs that an operator accepts for some time."""

from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response

from recrawl_client.wire.status import MOST_KIND, MOST_SUBJECT, AcceptBody, AcceptedNeed
from service.access.audit import write_audit
from service.api import openapi
from service.api.admission import TheActor
from service.api.assembly import TheBody, TheService
from service.api.examples import EXAMPLES
from service.api.requests.items import decode_object
from service.api.responses.encode import answer
from service.api.responses.status import encode_accepted
from service.api.route import GUARDED, DirectRoute
from service.model.acceptances import Acceptance
from service.model.errors import InvalidField, NeedNotFound
from service.status.needs import KINDS, judged
from service.storage import Transaction

router = APIRouter(tags=["status"], route_class=DirectRoute, dependencies=GUARDED)

ACCEPTED = "accepted needs"
"""Name under which the acceptances are held while they change."""


@router.put(
    "/needs/accepted",
    responses=openapi.answers(AcceptedNeed, EXAMPLES["accepted_need"], 404, *openapi.WRITES),
    openapi_extra=openapi.request_body(AcceptBody, EXAMPLES["accept"], batch=False),
)
def accept_need(service: TheService, actor: TheActor, body: TheBody) -> Response:
    """Accept a need for some time.

    The need leaves `needs_you` of GET /status for `accepted`, and the gauge does not count it. It
    comes back after `for_s`, and before if its condition begins anew where the service stores the
    begin. A later acceptance of the same need replaces this one.
    """
    sent = decode_object(body, AcceptBody)
    if sent.kind not in {kind.name for kind in KINDS}:
        raise InvalidField(
            "kind", f"{sent.kind} is no kind of needs; send the kind that GET /status has"
        )
    facts = service.state.facts()
    until = facts.at + timedelta(seconds=sent.for_s)
    acceptance = Acceptance(sent.kind, sent.subject, facts.at, until, sent.reason)
    (accepted,) = judged(replace(facts, acceptances=[acceptance])).accepted
    if accepted.need is None:
        raise NeedNotFound
    with service.store.begin() as tx:
        tx.hold_settings(ACCEPTED)
        before = _stored(tx, sent.kind, sent.subject)
        tx.accept_need(acceptance)
        name, after = f"{sent.kind} {sent.subject}", acceptance._asdict()
        write_audit(tx, actor, "need.accept", name, before and before._asdict(), after)
    return answer(encode_accepted(accepted))


@router.delete("/needs/accepted", **openapi.no_content(404, 422))
def withdraw_acceptance(
    service: TheService,
    actor: TheActor,
    kind: Annotated[
        str,
        Query(
            min_length=1,
            max_length=MOST_KIND,
            description="Kind of the need",
            examples=["window_too_narrow"],
        ),
    ],
    subject: Annotated[
        str,
        Query(
            min_length=1,
            max_length=MOST_SUBJECT,
            pattern=r"^[^\x00]*$",
            description="Subject of the need",
            examples=["shop.example.com"],
        ),
    ],
) -> Response:
    """Withdraw the acceptance of a need, which is then shown again."""
    with service.store.begin() as tx:
        tx.hold_settings(ACCEPTED)
        before = _stored(tx, kind, subject)
        if before is None:
            raise NeedNotFound
        tx.withdraw_acceptance(kind, subject)
        write_audit(tx, actor, "need.withdraw", f"{kind} {subject}", before._asdict())
    return Response(status_code=204)


def _stored(tx: Transaction, kind: str, subject: str) -> Acceptance | None:
    """Return the acceptance of a need that is in force; None: none is."""
    own = (each for each in tx.acceptances(tx.now()) if each[:2] == (kind, subject))
    return next(own, None)
