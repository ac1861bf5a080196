"""The gate: who the caller is, by a key or a token, and what the caller may do."""

from collections.abc import Callable
from threading import Event, Thread

from service.access.callers import ANYONE, STRANGER, Caller
from service.access.keyring import KeyRing
from service.access.roles import Right
from service.access.tokens import TokenChecker, UnknownSigner
from service.model.errors import ProviderUnavailable, Unauthorized

TOKEN_DOTS = 2
"""Number of dots in a JSON Web Token."""


class Gate:
    """The keys and tokens that a process accepts."""

    def __init__(
        self,
        ring: KeyRing,
        tokens: TokenChecker | None = None,
        public: frozenset[str] = frozenset(),
        *,
        shared: bool = False,
    ) -> None:
        self.ring = ring
        self.tokens = tokens
        self.public = public
        """Words of `RECRAWL_PUBLIC`."""
        self.shared = shared
        """True where `RECRAWL_OPEN` admits other machines without keys."""
        self.stopping = Event()

    @property
    def open(self) -> bool:
        """True while there is neither a key nor an identity provider, so everybody is admitted."""
        return self.tokens is None and not self.ring.closed

    def admit(self, key: str, right: Right, operation: str) -> Caller:
        """Return the caller who shows a key or a token, "" for none.

        Raises
        ------
        Unauthorized
            The operation needs a key, and this is none, or a token that is not valid.
        Forbidden
            The key or the token has no right to the operation.
        AccessUnavailable
            The key cannot be checked now.
        UnknownSigner
            The token is signed by an unknown key; refresh the tokens, then try again.
        """
        if right.role is None:
            return STRANGER
        if self.open:
            return ANYONE
        caller = self.caller(key)
        if caller is None:
            raise Unauthorized
        caller.check(right, operation)
        return caller

    def ask_again(self, key: str, right: Right, operation: str) -> None:
        """Raise as `admit` if a caller has lost a right since its request was admitted.

        A token whose signer is unknown by now cannot be checked without a reading.
        """
        try:
            self.admit(key, right, operation)
        except UnknownSigner as error:
            raise ProviderUnavailable from error

    def caller(self, key: str) -> Caller | None:
        """Return the caller who shows a key or a token; None for an invalid key.

        Raises
        ------
        Unauthorized, Forbidden, AccessUnavailable, UnknownSigner
            As `TokenChecker.caller`, for a token.
        """
        caller = self.ring.caller(key)
        if caller is None and self.tokens is not None and key.count(".") == TOKEN_DOTS:
            return self.tokens.caller(key)
        return caller

    # -- threads

    def start(self) -> list[Thread]:
        """Return the started threads that keep the keys and the provider's keys fresh."""
        followers: list[tuple[str, Callable[[], None]]] = [("keys", self._follow_keys)]
        if self.tokens is not None:
            followers.append(("signers", self._follow_signers))
        threads = [Thread(target=run, name=name, daemon=True) for name, run in followers]
        for thread in threads:
            thread.start()
        return threads

    def stop(self) -> None:
        """End the threads."""
        self.stopping.set()

    def _follow_keys(self) -> None:
        self.ring.follow(self.stopping)

    def _follow_signers(self) -> None:
        while self.tokens is not None and not self.stopping.is_set():
            if self.tokens.stale():
                self.tokens.refresh()
            self.stopping.wait(1.0)
