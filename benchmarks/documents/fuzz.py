"""Documents mutated at random: the reader raises nothing but its own errors, in little memory."""

import re
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from random import Random

from benchmarks.documents.score import MAX_BYTES, cases
from benchmarks.documents.written import BASE
from service.connectors.sitemap import Sitemap
from service.model.errors import RequestError

LONGEST = 4_096
"""Maximum length of a mutated document, bytes."""
MAX_MEMORY = 4_000_000
"""Maximum memory of one document, bytes."""
PIECES = re.compile(rb"<[^<>]*>?|&[^;<>]*;?|[^<&]+")
WORDS = (
    b"< > & \" ' / = ; : ]]> --> ?> [ ] </ /> &# &#x \0 \xff\xfe \xef\xbb\xbf \xc3 \x1f\x8b "
    b"<!-- <![CDATA[ <! <? <?xml <!DOCTYPE <!ENTITY encoding='utf-16'"
).split()


def mutants(n: int, seed: int = 1) -> Iterator[bytes]:
    """Yield documents that are broken by rules and then at random."""
    rng = Random(seed)
    originals = [case.content for case in cases(2, seed)]
    for _ in range(n):
        yield mutant(rng.choice(originals), rng.choice(originals), rng)


def mutant(content: bytes, other: bytes, rng: Random) -> bytes:
    """Return a document after some changes of bytes and of pieces of markup."""
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(content) + 1)
        to = min(at + rng.choice([1, 1, 2, 8, 100]), len(content))
        kind = rng.randrange(6)
        if kind == 0:
            content = content[:at] + content[to:]
        elif kind == 1:
            content = content[:at] + rng.choice(WORDS) * rng.choice([1, 1, 1, 200]) + content[at:]
        elif kind == 2:
            content = content[:at] + rng.randbytes(to - at) + content[to:]
        elif kind == 3:
            content = content[:at] + other[rng.randrange(len(other)) :][:200] + content[at:]
        elif kind == 4:
            content = content[:at] + content[at:to] * rng.choice([2, 30]) + content[to:]
        else:
            content = shuffled(content, rng)
    return content[:LONGEST]


def shuffled(content: bytes, rng: Random) -> bytes:
    """Return a document after some pieces of its markup have changed places."""
    pieces = PIECES.findall(content)
    for _ in range(3):
        if pieces:
            here, there = rng.randrange(len(pieces)), rng.randrange(len(pieces))
            pieces[here], pieces[there] = pieces[there], pieces[here]
    return b"".join(pieces)


def fuzz(n: int, seed: int = 1, *, measured: int = 0) -> Counter[str]:
    """Read mutated documents; return how many of them ended how, and raise for any other end.

    The memory of the first `measured` documents is measured, which takes ten times as long.
    """
    ends: Counter[str] = Counter()
    for number, content in enumerate(mutants(n, seed)):
        if number < measured:
            tracemalloc.start()
        try:
            sitemap = Sitemap(content, MAX_BYTES, BASE)
            ends["entries"] += sum(1 for _ in sitemap)
            ends["broke off" if sitemap.broke_off else "read"] += 1
        except RequestError as error:
            ends[type(error).__name__] += 1
        except Exception as error:
            raise AssertionError(f"document {number} of seed {seed}: {content!r}") from error
        if number < measured:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if peak > MAX_MEMORY:
                raise AssertionError(f"{peak:,} bytes for document {number} of seed {seed}")
    return ends
