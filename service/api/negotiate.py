"""Which of several offers a client likes best, by Accept or Accept-Encoding (RFC 9110, 12.5)."""

from functools import lru_cache


@lru_cache(maxsize=256)
def best(header: str, offers: tuple[str, ...]) -> str | None:
    """Give the offer of the highest quality, of equals what was named most exactly, then first.

    None where the client names none of them, or refuses them all.

    >>> best("text/html;q=0.9, */*;q=0.1", ("application/json", "text/html"))
    'text/html'
    >>> best("gzip, zstd;q=0", ("zstd", "gzip"))
    'gzip'
    """
    given = qualities(header)
    ranked = []
    for place, offer in enumerate(offers):
        ranges = (offer, f"{offer.partition('/')[0]}/*", "*/*", "*")
        named = next((i for i, pattern in enumerate(ranges) if pattern in given), None)
        if named is not None and given[ranges[named]] > 0:
            ranked.append((-given[ranges[named]], named, place))
    return offers[min(ranked)[2]] if ranked else None


def qualities(header: str) -> dict[str, float]:
    """Give the quality of each name in a header; one that cannot be read is 0.

    >>> qualities("a/b;level=1;q=0.5, *;q=x, c")
    {'a/b': 0.5, '*': 0.0, 'c': 1.0}
    """
    found = {}
    for part in header.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            found[name] = float(quality)
        except ValueError:
            found[name] = 0.0
    return found
