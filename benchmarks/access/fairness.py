"""Let one key flood the service, and compare the p99 of another key with quiet hours."""

import argparse
import json
import socket
import threading
import time
from datetime import UTC, datetime
from multiprocessing import Event, Process
from multiprocessing.synchronize import Event as Flag
from pathlib import Path

import numpy as np

from benchmarks.access.keys import sqlite_url, with_keys
from benchmarks.http.processes import serving
from service.model.access import Role

MOST = 3.0
"""Greatest ratio of the p99 under a flood to that of quiet hours."""
PAUSE_S = 0.01
"""Time between two requests of the quiet caller, seconds."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("--seconds", type=float, default=10.0, help="duration of each part")
    command.add_argument("--connections", type=int, default=200, help="connections of the flood")
    command.add_argument("--requests-per-key", type=int, default=16)
    command.add_argument("--rounds", type=int, default=3)


def run(options: argparse.Namespace, folder: Path) -> bool:
    """Measure quiet and busy hours in turns; return whether the ratio is small enough."""
    url = sqlite_url(folder)
    flooding, quiet = with_keys(url, [Role.report, Role.report])
    settings = {"max_requests_per_key": options.requests_per_key}
    ratios = []
    with serving(url, folder, **settings) as server:
        for _ in range(options.rounds):
            calm, _ = measured(server.port, quiet, options.seconds)
            stop = Event()
            flood = Process(target=flooded, args=(server.port, flooding, options.connections, stop))
            flood.start()
            time.sleep(1.0)
            busy, n = measured(server.port, quiet, options.seconds)
            stop.set()
            flood.join()
            ratios.append(busy / calm)
            print(
                f"p99 {1000 * calm:.1f} ms in quiet hours, {1000 * busy:.1f} ms under a flood of "
                f"{options.connections} connections, {n:,} requests: ratio {ratios[-1]:.2f}",
                flush=True,
            )
    median = float(np.median(ratios))
    print(f"median ratio {median:.2f}, at most {MOST}")
    return median <= MOST


def written(key: str, i: int) -> bytes:
    """Return a post of one observation."""
    at = datetime.now(UTC).isoformat()
    item = {"url": f"https://host{i % 97}.example/{i}", "observed_at": at, "changed": True}
    body = json.dumps([item]).encode()
    head = (
        "POST /observations HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def asked(connection: socket.socket, request: bytes) -> int:
    """Return the status of the answer to a request."""
    connection.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    (length,) = (
        int(line.partition(b":")[2])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65_536)
    return int(head.split(b" ", 2)[1])


def measured(port: int, key: str, seconds: float) -> tuple[float, int]:
    """Return the p99 of single posts of one connection, seconds, and their number."""
    times, deadline = [], time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while time.monotonic() < deadline:
            request = written(key, len(times))
            began = time.perf_counter()
            status = asked(connection, request)
            times.append(time.perf_counter() - began)
            assert status == 200, status
            time.sleep(PAUSE_S)
    return float(np.quantile(times, 0.99)), len(times)


def flooded(port: int, key: str, n_connections: int, stop: Flag) -> None:
    """Send single posts over many connections as fast as the service answers."""

    def send() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            i = 0
            while not stop.is_set():
                asked(connection, written(key, i := i + 1))

    threads = [threading.Thread(target=send, daemon=True) for _ in range(n_connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
