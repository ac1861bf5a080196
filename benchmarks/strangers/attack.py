"""The hostile peers, each with its own address."""

import gzip
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx

N_HOSTS = 16
"""Number of hostile hosts."""
MANY_URLS = b"".join(b', "http://HOST/%080d"' % i for i in range(8_500))
BOMB = (
    gzip.compress(
        b'{"host": "a.example", "key": "bogus-key", "urlList": [""' + b',""' * 10_000_000
    ),
    {"Content-Encoding": "gzip"},
)


def attack(url: str, n_submissions: int, n_peers: int) -> Counter[int]:
    """Submit from all hostile addresses at the same time; return the counts of statuses."""
    share = n_submissions // n_peers
    with ThreadPoolExecutor(n_peers) as peers:
        return sum(peers.map(lambda n: attack_from(url, n, share), range(n_peers)), Counter())


def attack_from(url: str, peer: int, n_submissions: int) -> Counter[int]:
    """Submit from one address: of ten bodies eight are small, one is large, one a gzip bomb."""
    statuses: Counter[int] = Counter()
    with client(url, f"127.0.1.{peer + 1}") as web:
        for i in range(n_submissions):
            content, headers = BOMB if i % 10 == 0 else (body(i, peer), {})
            try:
                response = web.post("/indexnow", content=content, headers=headers)
                statuses[response.status_code] += 1
            except httpx.TransportError:
                statuses[0] += 1
    return statuses


def body(i: int, peer: int) -> bytes:
    """Return a submission with a bogus key for a hostile host, large or small."""
    host = f"hostile-{(i + peer) % N_HOSTS:02}.example"
    head = f'{{"host": "{host}", "key": "bogus-{peer}-{i:05}", "urlList": ["http://{host}/"'
    urls = MANY_URLS.replace(b"HOST", host.encode()) if i % 10 == 1 else b""
    return head.encode() + urls + b"]}"


def client(url: str, address: str) -> httpx.Client:
    """Return a client with its own local address."""
    transport = httpx.HTTPTransport(local_address=address, verify=False)
    return httpx.Client(base_url=url, transport=transport, timeout=60)
