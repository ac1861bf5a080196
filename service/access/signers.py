"""The public keys of an identity provider, from its set of keys (JWKS, RFC 7517)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from service.model.words import counted

RSA = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
ALGORITHMS = RSA | {"ES256", "ES384", "ES512", "EdDSA"}
"""Accepted algorithms: signatures with a public key only."""
USE, OPERATION = "sig", "verify"
"""Purpose of a key that signs tokens: its `use`, and a word of its `key_ops`."""


class Signer(NamedTuple):
    """A public key, and the algorithms by which it may have signed."""

    key: Any
    algorithms: frozenset[str]


class SignerSet(NamedTuple):
    """The usable keys of a document."""

    by_name: Mapping[str | None, list[Signer]]
    """Keys by their `kid`; a provider may have two of one name while it changes them."""
    n_skipped: int
    """Number of entries of other kinds and for other purposes."""

    @property
    def n_keys(self) -> int:
        """Return the number of keys."""
        return sum(map(len, self.by_name.values()))

    def of(self, kid: str | None) -> list[Signer] | None:
        """Return the keys of a name; without a name the only key; None if there is none."""
        if kid is None and self.n_keys == 1:
            return next(iter(self.by_name.values()))
        return None if kid is None else self.by_name.get(kid)


NO_SIGNERS = SignerSet({}, 0)
ACCEPTED = ", ".join(sorted(ALGORITHMS))


def signers_of(jwt: Any, document: Any) -> SignerSet:
    """Return the keys of a document by the package PyJWT.

    Raises
    ------
    ValueError
        The document is no set of keys, or no key of it signs tokens.
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        reason = "the answer is JSON without a list `keys`; is this the JWKS address?"
        raise ValueError(reason)  # noqa: TRY004 - it is the value of an answer
    by_name: dict[str | None, list[Signer]] = {}
    n_skipped = 0
    for entry in entries:
        signer = _signer(jwt, entry)
        if signer is None:
            n_skipped += 1
        else:
            by_name.setdefault(entry.get("kid"), []).append(signer)
    if not by_name:
        keys = counted(len(entries), "key")
        raise ValueError(f"the answer has {keys}, none of which signs by {ACCEPTED}")
    return SignerSet(by_name, n_skipped)


def _signer(jwt: Any, entry: Any) -> Signer | None:
    """Return the key of an entry; None for another kind of key, or another purpose."""
    if not (isinstance(entry, dict) and isinstance(entry.get("kid"), str | None)):
        return None
    operations = entry.get("key_ops", [OPERATION])
    if entry.get("use", USE) != USE or not isinstance(operations, list):
        return None
    if OPERATION not in operations:
        return None
    try:
        parsed = jwt.PyJWK(entry)
    except (jwt.PyJWTError, TypeError, ValueError):  # an unknown kind of key beside useful ones
        return None
    # a key without `alg` signs by each algorithm of its kind (RFC 7517, 4.4)
    named = parsed.algorithm_name
    possible = RSA if "alg" not in entry and named in RSA else frozenset((named,))
    algorithms = possible & ALGORITHMS
    return Signer(parsed.key, algorithms) if algorithms else None
