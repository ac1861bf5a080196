"""Claims of a verified token: who its subject is, and which names of roles it has."""

import re
from collections.abc import Mapping
from typing import Any

SUBJECTS = ("sub", "client_id", "azp")
"""Claims that name the subject; the first one with a text counts.

Some providers leave `sub` out of the tokens of programs, which have the name of the client.
"""
SCOPES = frozenset(("scope", "scopes", "scp"))
"""Last words of claims whose text is a list of words, as RFC 8693 defines `scope`."""


def subject_of(claims: Mapping[str, Any]) -> str | None:
    """Return the name of the subject; None without one.

    >>> subject_of({"sub": "", "client_id": "crawler"})
    'crawler'
    """
    names = (claims.get(name) for name in SUBJECTS)
    return next((name for name in names if isinstance(name, str) and name), None)


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return the claim of a name, or of a path of names with dots between; None without one.

    A name may have dots of its own: the longest name that exists counts.

    >>> claim({"resource_access": {"my.app": {"roles": ["crawl"]}}}, "resource_access.my.app.roles")
    ['crawl']
    >>> claim({"https://a.example/roles": ["read"]}, "https://a.example/roles")
    ['read']
    """
    if name in claims:
        return claims[name]
    for dot in reversed([match.start() for match in re.finditer(r"\.", name)]):
        inner = claims.get(name[:dot])
        value = claim(inner, name[dot + 1 :]) if isinstance(inner, Mapping) else None
        if value is not None:
            return value
    return None


def role_names(claims: Mapping[str, Any], name: str) -> list[str]:
    """Return the names of roles in a claim: its text, its words if it is a scope, or its list.

    >>> role_names({"scope": "openid crawl"}, "scope"), role_names({"role": "site admin"}, "role")
    (['openid', 'crawl'], ['site admin'])
    """
    value = claim(claims, name)
    if isinstance(value, str):
        # other texts may be a stranger's, such as the environment in the `sub` of a workflow
        return value.split() if re.split(r"[.:/]", name)[-1] in SCOPES else [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
