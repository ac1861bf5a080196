"""Fuzz the service with one key of each role, and look for rights above the role and for leaks."""

import argparse
import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
from typing_extensions import override

from benchmarks.access.keys import ADMIN, sqlite_url, with_keys
from benchmarks.fuzz import described
from benchmarks.fuzz.judge import Judge
from benchmarks.http.processes import serving
from service.access.roles import right_of
from service.model.access import Role

TABLES = {
    "api_keys": "SELECT key_id, digest, name, role, expires_at, revoked_at, hosts FROM api_keys",
    "audit": "SELECT * FROM audit",
    "host_groups": "SELECT * FROM host_groups",
    "host_queues": "SELECT queue_id, min_delay_s, robots_delay_s, max_concurrency FROM host_queues",
    "websub": "SELECT * FROM websub",
    "webhooks": "SELECT id, url, secret, kinds, host, prefix, max_items, status FROM webhooks",
    "leases": "SELECT token, worker FROM due_pages WHERE token IS NOT NULL",
    "pages": "SELECT page_id, url, importance FROM pages",
}
"""Statements that read what only some roles may change."""
CHANGED_BY = {
    Role.read: (),
    Role.report: ("pages", "host_queues"),
    Role.crawl: ("pages", "host_queues", "leases"),
    Role.admin: tuple(TABLES),
}
"""Tables that a role may change; reports of new pages insert queues of their hosts."""
SECRET = re.compile(r"rcr_[0-9a-f]{10}_[0-9a-f]{48}")
PAGES = ["https://a.example/", "https://b.example/"]


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("--requests", type=int, default=20_000, help="requests of each role")
    command.add_argument("--roles", nargs="+", default=[role.name for role in Role])
    command.add_argument("--seed", type=int, default=1)


class RoleJudge(Judge):
    """A judge who also complains about rights above a role, and about secrets in answers."""

    def __init__(self, role: Role, needed: Mapping[str, Role | None], secrets: list[str]) -> None:
        super().__init__()
        self.role = role
        self.needed = needed
        self.secrets = secrets

    @override
    def answer(
        self,
        source: str,
        operation: str,
        request: Callable[[], str],
        status: int,
        headers: Mapping[str, str],
        content: bytes,
    ) -> None:
        super().answer(source, operation, request, status, headers, content)
        needed = self.needed[operation]
        above = needed is not None and self.role < needed
        if above and status not in (403, 400):
            self.complain(f"{operation}: above the role, {status}", request())
        if above and status == 400 and b"is not HTTP" not in content:
            self.complain(f"{operation}: a body was read above the role", request())
        if not above and status in (401, 403):
            self.complain(f"{operation}: refused below the role, {status}", request())
        text = content.decode("latin-1") + str(dict(headers))
        if any(secret in text for secret in self.secrets):
            self.complain(f"{operation}: a secret in an answer", request())
        created = operation in ("POST /keys", "POST /keys/{key_id}/rotation") and status == 201
        if SECRET.search(text) and not created:
            self.complain(f"{operation}: a key in an answer", request())


def run(options: argparse.Namespace, folder: Path) -> bool:
    """Fuzz with each role; return whether nothing was found."""
    results = [fuzz(Role[name], options, folder / name) for name in options.roles]
    return all(results)


def fuzz(role: Role, options: argparse.Namespace, folder: Path) -> bool:
    """Fuzz with a key of one role, print what was found, and return whether that is nothing."""
    folder.mkdir()
    url = sqlite_url(folder)
    keys = with_keys(url, (*Role, role))
    key, secrets = keys[-1], [ADMIN, *keys]
    settings = {"api_keys": ADMIN, "max_body_bytes": 1_000_000, "log_level": "debug"}
    with serving(url, folder, **settings) as server:
        admin = {"Authorization": f"Bearer {ADMIN}"}
        document = httpx.get(f"{server.base}/openapi.json").json()
        pages = [{"url": page} for page in PAGES]
        httpx.post(f"{server.base}/pages", json=pages, headers=admin).raise_for_status()
        judge = RoleJudge(role, needed_of(document), [secret[-40:] for secret in secrets])
        before = digests(folder)
        described.fuzz(document, server.base, options.requests, options.seed, judge, key)
        after = digests(folder)
        for table in TABLES:
            if before[table] != after[table] and table not in CHANGED_BY[role]:
                judge.complain(f"the role {role.name} changed {table}", "")
        shown = httpx.get(f"{server.base}/metrics").text
    for name, text in (("metrics", shown), ("log", log_of(folder))):
        if any(secret in text for secret in judge.secrets):
            judge.complain(f"a secret in the {name}", "")
    show(role, judge)
    return not judge.complaints.total()


def needed_of(document: Mapping[str, Any]) -> dict[str, Role | None]:
    """Return the role that each operation needs, by method and path."""
    return {
        f"{method.upper()} {path}": right_of(operation["operationId"]).role
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def digests(folder: Path) -> dict[str, str]:
    """Return a digest of each table."""
    with closing(sqlite3.connect(folder / "access.db")) as connection:
        rows = {table: connection.execute(text).fetchall() for table, text in TABLES.items()}
    return {
        table: sha256(repr(sorted(rows[table], key=repr)).encode()).hexdigest() for table in rows
    }


def log_of(folder: Path) -> str:
    return (folder / "service.log").read_text(errors="replace")


def show(role: Role, judge: RoleJudge) -> None:
    """Print the counts of a role, and the complaints with an example."""
    statuses: dict[int, int] = {}
    for (_, status), n in judge.counts.items():
        statuses[status] = statuses.get(status, 0) + n
    counted = ", ".join(f"{status}: {n:,}" for status, n in sorted(statuses.items()))
    print(f"{role.name}: {judge.n_requests:,} requests ({counted})", flush=True)
    for kind, n in judge.complaints.items():
        print(f"  {n:,} times {kind}: {json.dumps(judge.examples[kind][:1])[:600]}", flush=True)
