"""Rules for every answer, and counts of answers by operation and status."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.faults.caller import objection

EXAMPLES = 5
"""Maximum number of examples of each kind of complaint."""


@dataclass
class Judge:
    """Counts of all answers, and examples of answers that break a rule."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Answers by operation and status; status 0 is a connection closed without an answer."""
    shares: Counter[str] = field(default_factory=Counter)
    """Requests by source."""
    complaints: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def n_requests(self) -> int:
        return self.shares.total()

    def answer(
        self,
        source: str,
        operation: str,
        request: Callable[[], str],
        status: int,
        headers: Mapping[str, str],
        content: bytes,
    ) -> None:
        """Count an answer, and record a complaint if its form is not as documented.

        `request` is a function that returns the request as text, because formatting the text takes
        longer than sending the request.
        """
        self.shares[source] += 1
        self.counts[operation, status] += 1
        if wrong := objection(status, headers, content):
            self.complain(f"{operation}: {wrong.partition(':')[0]}", f"{request()} -> {wrong}")

    def hang_up(self, source: str, operation: str, request: str) -> None:
        """Count a request without an answer, and record a complaint."""
        self.shares[source] += 1
        self.counts[operation, 0] += 1
        self.complain(f"{operation}: no answer", request)

    def complain(self, kind: str, example: str) -> None:
        self.complaints[kind] += 1
        if len(self.examples[kind]) < EXAMPLES:
            self.examples[kind].append(example[:2_000])
