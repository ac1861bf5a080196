"""Keys, and the audit of administrative acts."""

from datetime import timedelta

from fastapi import Response

from recrawl_client.wire.access import AuditAnswer, CreatedKey, KeysAnswer
from service.api.routes import access
from service.console.visit import Visit
from service.model.access import Role
from service.model.errors import InvalidField

PART = 50
KEYS = 200
ROLES = [role.name for role in Role]
LIFETIMES = {"30": "30 days", "90": "90 days", "365": "a year", "": "no end"}
"""Lifetimes of a new key, days, and their words."""
GRACE_S = 86_400
"""Time for which a rotated key still works, seconds."""


def show(visit: Visit) -> Response:
    """Show the keys and the audit."""
    return _page(visit, None)


def create(visit: Visit) -> Response:
    """Create a key, and show it once."""
    form, days = visit.form, visit.form.get("days", "")
    if days not in LIFETIMES:
        raise InvalidField("days", f"days is none of {', '.join(LIFETIMES)}; choose one of them")
    fields = {"name": form.get("name", "").strip(), "role": form.get("role", "")}
    if days:
        fields["expires_at"] = (visit.now + timedelta(days=int(days))).isoformat()
    return _page(
        visit, visit.ask(CreatedKey, access.post_key, actor=visit.actor, body=visit.body(**fields))
    )


def revoke(visit: Visit) -> Response:
    """Revoke a key."""
    access.delete_key(service=visit.service, actor=visit.actor, **visit.parameters("get_key"))
    return visit.go("/console/access", "revoked")


def rotate(visit: Visit) -> Response:
    """Replace a key by a new one, and show that once."""
    new = visit.ask(
        CreatedKey,
        access.rotate_key,
        actor=visit.actor,
        **visit.parameters("get_key"),
        body=visit.body(grace_s=GRACE_S),
    )
    return _page(visit, new)


def _page(visit: Visit, new: CreatedKey | None) -> Response:
    request = visit.request
    values = {"limit": PART} | visit.parameters("list_audit")
    if "object" in values:
        values["name"] = values.pop("object")
    audit = visit.ask(AuditAnswer, access.list_audit, request=request, **values)
    keys = visit.ask(KeysAnswer, access.list_keys, request=request, limit=KEYS)
    return visit.page(
        "access.html",
        audit=audit,
        keys=keys.items,
        new=new,
        roles=ROLES,
        lifetimes=LIFETIMES,
        is_open=visit.service.gate.open,
    )
