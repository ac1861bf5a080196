"""Lease requests that may report crawls first: posts whose answer has leases.

One transaction records the crawls of all requests, leases pages for the workers, and stores the
answers to requests with an Idempotency-Key. A request that repeats a key receives the stored
answer.
"""

from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import compress
from typing import Literal, NamedTuple

import numpy as np
from msgspec import json

from recrawl_client.wire.evidence import Reported
from recrawl_client.wire.leases import Crawl, Leased
from service.api.requests.posts import Counts, GatheredPosts, Post, PostRecorder
from service.api.responses.encode import encode_leased
from service.batching.batcher import Batcher
from service.batching.held import Attempt, after, attempted
from service.batching.lease_requests import LIMITS, LeaseRequest, book, lease_all, next_ready
from service.budget.grants import Grant
from service.budget.keeper import Keeper
from service.leases import lease
from service.leases.dealt import DealtPages
from service.leases.politeness import Politeness
from service.model.amounts import CRAWLS
from service.model.arrays import INSTANT, instant
from service.model.errors import AnswerTaken, KeyReused, RowLocked
from service.storage import Store, Transaction
from service.storage.queue.answers import ANSWERS_KEPT, LeaseAnswers

DROP_EVERY = timedelta(seconds=1)
"""Time between two deletions of expired answers."""


class RepeatedKey(Exception):
    """Two requests of a batch have one key, so the batcher must flush each alone, in order."""


@dataclass(frozen=True, slots=True)
class CallKey:
    """The Idempotency-Key of a request, and its body, as hashes of 64 bits."""

    key: int
    body: int

    @classmethod
    def of(cls, key: str, *body: bytes) -> "CallKey":
        """Return the hashes of a key and of a body in parts."""
        return cls(_hash(key.encode()), _hash(b"\0".join(body)))


@dataclass(frozen=True, slots=True, eq=False)
class LeaseCall:
    """One request."""

    request: LeaseRequest
    post: Post | None = None
    """Crawls to report; None: no crawls, or their report is committed."""
    key: CallKey | None = None
    counts: Counts | None = None
    """Outcomes of the crawls, where their report is committed."""

    @property
    def kind(self) -> Hashable:
        """Requests with the same filter share a batch, unless only one registers URLs."""
        return self.request.kind, self.post is None or self.post.register

    @property
    def size(self) -> int:
        """Number of crawls requested or reported."""
        return max(self.request.size, self.post.size if self.post else 0)


@dataclass(slots=True)
class CallReply:
    """The reply to one request."""

    counts: Counts | None
    """Outcomes of the reported crawls; None without a report."""
    items: list[Crawl] = field(default_factory=list)
    """The leased crawls."""
    answer: str | None = None
    """JSON of the whole answer, for a request with a key and leases."""
    next_ready_at: datetime | None = None
    """Earliest time of the next due page where nothing was leased; None: nothing is queued."""
    held_by: Literal["budget", "income"] | None = None
    """As in `Leased`."""
    waits_for: Future[Counts] | None = None
    """Outcomes of a report with crawls that wait for locked pages."""

    @property
    def is_empty(self) -> bool:
        """True if the request has no leases."""
        return not self.items and self.answer is None

    def with_counts(self, counts: Counts) -> "CallReply":
        """Return the reply with the outcomes that it waits for."""
        return replace(self, counts=counts, waits_for=None)


class Missed(NamedTuple):
    """Pages that found no room in the budget."""

    urgent: float = 0.0
    """Amount of urgent pages."""
    is_short: bool = False
    """True if other due pages cost more than the server had expected."""


NOTHING_MISSED = Missed()

LeaseCalls = Batcher[LeaseCall, CallReply]


@dataclass(slots=True)
class CallFlush:
    """The flush of lease requests."""

    store: Store
    polite: Politeness
    rng: np.random.Generator
    posts: PostRecorder
    keeper: Keeper
    drop_at: datetime | None = None
    """Time of the next deletion of expired answers."""

    def __call__(self, calls: list[LeaseCall]) -> list[CallReply | Future[CallReply]]:
        """Record, lease and store in one transaction; lease the rest for requests without a key.

        A request with a key has leases of one transaction only. A request with a crawl of a locked
        page has no leases, and its reply is a future. Raise `RepeatedKey`, or the `KeyReused` of
        one request.
        """
        keyed = [call.key.key for call in calls if call.key is not None]
        if len(set(keyed)) < len(keyed):
            raise RepeatedKey
        replies = [CallReply(call.counts) for call in calls]
        reports = any(call.post for call in calls)
        missed = self._commit(calls, replies) if reports or keyed else NOTHING_MISSED
        # this transaction waits for host queues, the first one may not, and it may have a loan
        if keyed and (reports or missed.urgent or missed.is_short):
            self._commit_empty(calls, replies, missed.urgent)
        if keyed and self.keeper.terms is not None:
            self._commit_empty(calls, replies, ahead=True)
        self._lease_rest(calls, replies)
        if keyed:
            self._drop_expired()
        return [
            reply if reply.waits_for is None else after(reply.waits_for, reply.with_counts)
            for reply in replies
        ]

    def _commit_empty(
        self,
        calls: list[LeaseCall],
        replies: list[CallReply],
        urgent: float = 0.0,
        *,
        ahead: bool = False,
    ) -> None:
        """Run one more transaction for the requests with a key that have no leases yet."""
        still = [
            r.is_empty and c.key is not None and r.waits_for is None
            for c, r in zip(calls, replies, strict=True)
        ]
        unreported = [replace(call, post=None) for call in compress(calls, still)]
        if unreported:
            self._commit(unreported, list(compress(replies, still)), urgent, ahead=ahead)

    def _commit(
        self,
        calls: list[LeaseCall],
        replies: list[CallReply],
        urgent: float = 0.0,
        *,
        ahead: bool = False,
    ) -> Missed:
        """Run one transaction; repeat it if another process has answered one of its keys.

        Host queues that hold it up for long are left out. Urgent pages of the amount `urgent` may
        be leased on loan, and with `ahead` those that are not due yet. Return what found no room in
        the budget.
        """
        wait = all(call.post is None for call in calls)
        attempt = partial(self._attempt, calls, replies, urgent, ahead=ahead)
        try:
            return attempt(wait=wait)
        except AnswerTaken:
            return attempt(wait=wait)
        except RowLocked:
            if not wait:
                raise
            return attempt(wait=False)

    def _attempt(
        self,
        calls: list[LeaseCall],
        replies: list[CallReply],
        urgent: float,
        *,
        ahead: bool,
        wait: bool,
    ) -> Missed:
        count = sum(call.request.size for call in calls)
        with self.keeper.grant(count, urgent, ahead=ahead) as grant:
            if ahead and not grant.is_open:
                return NOTHING_MISSED
            flush = partial(self._commit_once, calls, replies, grant, wait=wait)
            attempted(self.store, self.posts.recorder.crawls.pages(), flush)
        return Missed(grant.urgent, grant.short is not None)

    def _commit_once(
        self,
        calls: list[LeaseCall],
        replies: list[CallReply],
        grant: Grant,
        attempt: Attempt,
        *,
        wait: bool,
    ) -> None:
        posts, now = [call.post for call in calls if call.post is not None], self.posts.now()
        keys = np.array([call.key.key for call in calls if call.key is not None], np.int64)
        gathered = GatheredPosts.of(posts, now, self.posts.unit) if posts else None
        own, waiting = [CallReply(reply.counts) for reply in replies], list[LeaseCall]()
        with self.store.begin() as tx:
            tx.hurry()
            rows = tx.lease_answers(keys) if len(keys) else ()
            if gathered is not None:
                committed, following = self.posts.recorder.record_crawls(
                    tx, [gathered.report], attempt
                )
                counts = gathered.counts(committed)
                held = gathered.holding(committed)
                reporting = [call.post is not None for call in calls]
                for reply, of_reply in zip(compress(own, reporting), counts, strict=True):
                    reply.counts = of_reply
                for call, waits in zip(compress(calls, reporting), held, strict=True):
                    waiting += [call] if waits else []
            stored = {key: StoredAnswer(body, answer) for key, body, answer in rows}
            repeated = [_stored(call, stored) for call in calls]
            fresh = [
                answer is None and call not in waiting
                for call, answer in zip(calls, repeated, strict=True)
            ]
            new = list(compress(calls, fresh)), list(compress(own, fresh))
            self._lease(tx, *new, grant, wait=wait)
        if gathered is not None:
            self.posts.recorder.after_commit([gathered.report], committed, following)
            outcomes = self.posts.counted(gathered, committed, counts)
            for reply, outcome in zip(compress(own, reporting), outcomes, strict=True):
                reply.waits_for = outcome if isinstance(outcome, Future) else None
        for reply, of_call, answer in zip(replies, own, repeated, strict=True):
            reply.counts, reply.items = of_call.counts, of_call.items
            reply.waits_for = of_call.waits_for
            reply.answer = of_call.answer if answer is None else answer

    def _lease(
        self,
        tx: Transaction,
        calls: list[LeaseCall],
        replies: list[CallReply],
        grant: Grant,
        *,
        wait: bool,
    ) -> None:
        """Lease for these requests, and store the answers to those with a key."""
        grant.begin()
        if not calls or not grant.is_open:
            return
        wishes, reach = [call.request.wish for call in calls], calls[0].request.kind
        dealt = lease.lease(
            tx,
            wishes,
            reach,
            self.polite,
            self.rng,
            wait=wait,
            allotment=grant.allotment,
            loan=grant.may_lend,
            ahead=grant.ahead,
        )
        book(grant, dealt)
        give(dealt, replies, self.posts.unit)
        keyed: list[tuple[CallKey, str]] = []
        for call, reply in zip(calls, replies, strict=True):
            if call.key is not None and reply.items:
                reply.answer = encode_answer(reply)
                keyed.append((call.key, reply.answer))
        expires_at = instant(tx.now() + ANSWERS_KEPT)
        if keyed:
            tx.add_lease_answers(
                LeaseAnswers(
                    key=np.array([key.key for key, _ in keyed], np.int64),
                    body=np.array([key.body for key, _ in keyed], np.int64),
                    expires_at=np.full(len(keyed), expires_at, INSTANT),
                    answer=np.array([answer for _, answer in keyed], object),
                )
            )

    def _lease_rest(self, calls: list[LeaseCall], replies: list[CallReply]) -> None:
        """Lease what requests without a key still miss; read when the next page is ready."""
        missing = [
            0
            if call.key is not None or reply.waits_for is not None
            else call.request.size - len(reply.items)
            for call, reply in zip(calls, replies, strict=True)
        ]
        requests = [call.request for call in calls]
        parts = lease_all(self.store, self.polite, self.rng, requests, missing, self.keeper)
        for dealt in parts:
            give(dealt, replies, self.posts.unit)
        empty = [reply for reply in replies if reply.is_empty]
        if empty:
            # without budget, no page is ready, whatever the queue has
            next_ready_at = self.keeper.spent_until()
            held_by = self.keeper.held_by()
            if next_ready_at is None:
                next_ready_at = next_ready(self.store, calls[0].request.kind)
            for reply in empty:
                reply.next_ready_at, reply.held_by = next_ready_at, held_by

    def _drop_expired(self) -> None:
        now = self.posts.now()
        if self.drop_at is None or now >= self.drop_at:
            self.drop_at = now + DROP_EVERY
            with self.store.begin() as tx:
                tx.drop_lease_answers(now)


def give(dealt: DealtPages, replies: list[CallReply], unit: str = CRAWLS) -> None:
    """Add the leased crawls to the replies of their requests; `unit` is that of the budget."""
    for crawl, i in zip(encode_leased(dealt.leased, unit), dealt.to.tolist(), strict=True):
        replies[i].items.append(crawl)


class StoredAnswer(NamedTuple):
    """The answer to the first request with a key."""

    body: int
    answer: str


def _stored(call: LeaseCall, stored: dict[int, StoredAnswer]) -> str | None:
    """Return the stored answer to a request; raise `KeyReused` if its body is another one."""
    first = stored.get(call.key.key) if call.key is not None else None
    if first is None or call.key is None:
        return None
    if first.body != call.key.body:
        raise KeyReused
    return first.answer


def encode_answer(
    reply: CallReply, retry_after_s: float | None = None, paused_until: datetime | None = None
) -> str:
    """Return the JSON of an answer."""
    reported = None if reply.counts is None else Reported(**reply.counts)
    answer = Leased(
        items=reply.items,
        retry_after_s=retry_after_s,
        paused_until=paused_until,
        held_by=None if reply.items or paused_until is not None else reply.held_by,
        reported=reported,
    )
    return json.encode(answer).decode()


def _hash(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


def batched_calls(flush: CallFlush) -> LeaseCalls:
    """Return the batcher of lease requests."""
    return Batcher("leases", flush, LIMITS)
