"""The audit of administrative acts, written in the transaction of the act."""

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from service.model.access import Actor, AuditEntry
from service.storage import Transaction

MAX_OBJECT = 2_000
"""Maximum length of the name of an object, characters."""


def write_audit(
    tx: Transaction,
    actor: Actor,
    act: str,
    name: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Append an entry to the audit in the transaction of the act.

    Parameters
    ----------
    act
        Kind of the object and verb: `host.change`, `page.delete`.
    name
        Name of the object; of a bulk act, its filter.
    before, after
        Values of the object; of a change, fields with equal values are left out. Secrets do not
        belong here.
    """
    if before is not None and after is not None:
        before, after = differences(before, after)
    tx.append_audit(
        AuditEntry(
            at=tx.now(),
            key=actor.key,
            act=act,
            object=name[:MAX_OBJECT],
            before=None if before is None else to_builtins(dict(before)),
            after=None if after is None else to_builtins(dict(after)),
            request_id=actor.request_id,
        )
    )


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both mappings without the fields that are equal.

    >>> differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4})
    ({'b': 2}, {'b': 3, 'c': 4})
    """
    absent = object()
    return (
        {name: value for name, value in before.items() if after.get(name, absent) != value},
        {name: value for name, value in after.items() if before.get(name, absent) != value},
    )
