"""The best of several offers by the header Accept or Accept-Encoding (RFC 9110, 12.5)."""

from functools import lru_cache


@lru_cache(maxsize=256)
def best(header: str, offers: tuple[str, ...]) -> str | None:
    """Return the offer of the highest quality; of equals the most exactly named, then the first.

    None means that the client names or allows none of them.

    >>> best("text/html;q=0.9, */*;q=0.1", ("application/json", "text/html"))
    'text/html'
    >>> best("gzip, zstd;q=0", ("zstd", "gzip"))
    'gzip'
    """
    quality = qualities(header)
    ranked = []
    for place, offer in enumerate(offers):
        ranges = (offer, f"{offer.partition('/')[0]}/*", "*/*", "*")
        exactness = next((i for i, pattern in enumerate(ranges) if pattern in quality), None)
        if exactness is not None and quality[ranges[exactness]] > 0:
            ranked.append((-quality[ranges[exactness]], exactness, place))
    return offers[min(ranked)[2]] if ranked else None


def qualities(header: str) -> dict[str, float]:
    """Return the quality of each name in a header; an unreadable one is 0.

    >>> qualities("a/b;level=1;q=0.5, *;q=x, c")
    {'a/b': 0.5, '*': 0.0, 'c': 1.0}
    """
    by_name = {}
    for part in header.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            by_name[name] = float(quality)
        except ValueError:
            by_name[name] = 0.0
    return by_name
