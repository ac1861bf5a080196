"""Callers, and the right of a caller to an operation."""

from dataclasses import dataclass

from service.access.boundary import Boundary
from service.access.limits import Slots, TokenBucket
from service.access.roles import Right
from service.model.access import Role, role_names
from service.model.errors import Forbidden

OF_TOKENS = "jwt:"
"""Start of the names of callers who show a token."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The author of requests, with the limits of its key."""

    name: str
    """Name for the audit: the id of a key, `environment-N`, `jwt:SUBJECT` or `anyone`."""
    role: Role | None
    """None for a site that shows the key of IndexNow, or a caller of public operations."""
    known: bool = False
    """True if the caller has shown a valid key or token."""
    boundary: Boundary | None = None
    bucket: TokenBucket | None = None
    slots: Slots | None = None
    """Places for its requests in work; None: no limit."""

    def check(self, right: Right, operation: str) -> None:
        """Raise `Forbidden` without the right to an operation, such as POST /leases."""
        if right.role is None or self.role is None:
            return
        if self.role < right.role:
            needed = role_names([role for role in Role if role >= right.role])
            kind = "token" if self.name.startswith(OF_TOKENS) else "key"
            has = f"this {kind} has the role {self.role.name}"
            raise Forbidden(f"{operation} needs a {kind} of role {needed}; {has}")
        if self.boundary is not None and (right.limited is None or self.role < right.limited):
            accepts = "accepts no key"
            if right.limited is not None:
                accepts = f"needs the role {right.limited.name} of a key"
            raise Forbidden(
                f"{operation} {accepts} that is limited to hosts or URLs; use a key without limits"
            )


ANYONE = Caller("anyone", Role.admin)
"""The caller of a service without keys, who may do everything."""
STRANGER = Caller("stranger", None)
"""A caller without a key."""
