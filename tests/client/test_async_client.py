"""Both clients have the same methods, and both drive a real service to the same answers."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest
from support.live_server import START, running, until
from support.processes import free_port

import recrawl_client as rc
from recrawl_client import AsyncClient, AsyncReporter, Client, Reporter

NEVER_S = 3_600.0
URLS = [f"https://a.example/{i}" for i in range(5)]
SITEMAP = b"""<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
  <url><loc>https://a.example/1</loc><lastmod>2026-04-30</lastmod></url></urlset>"""


def methods(kind):
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def result_of(method):
    """The result of a method, whether it is awaited, gone through or returned."""
    return (
        str(inspect.signature(method).return_annotation)
        .replace("AsyncIterator", "Iterator")
        .replace("AsyncReporter", "Reporter")
        .replace("async_client", "client")
    )


def parameters_of(method):
    """The parameters of a method, whose types name the calls of threads."""
    return [
        str(each).replace("AsyncLeaseCalls", "LeaseCalls")
        for each in inspect.signature(method).parameters.values()
    ]


@pytest.mark.parametrize(("one", "other"), [(Client, AsyncClient), (Reporter, AsyncReporter)])
def test_both_have_the_same_methods_and_signatures(one, other):
    ours, theirs = methods(one), methods(other)
    assert set(ours) == set(theirs)
    for name, method in ours.items():
        assert parameters_of(method) == parameters_of(theirs[name]), name
        assert result_of(method) == result_of(theirs[name]), name
        assert inspect.getdoc(method), name


def test_every_method_that_sends_is_awaited_and_no_other():
    awaited = {name for name, m in methods(AsyncClient).items() if inspect.iscoroutinefunction(m)}
    at_once = {"observation", "reporter", "hosts", "subscriptions", "schedule", "epochs"}
    at_once |= {"follow_changes", "webhooks", "audit"}
    at_once |= {"pages", "page_log", "steps", "running_leases", "groups", "url_groups"}
    assert set(methods(AsyncClient)) - awaited == at_once


def test_both_take_the_same_settings():
    ours, theirs = (inspect.signature(kind).parameters for kind in (Client, AsyncClient))
    assert list(ours) == list(theirs)
    differing = {name for name in ours if ours[name] != theirs[name]}
    assert differing == {"wait", "transport"}


async def settled(outcome):
    """Return an outcome of either client: awaited, and a list of what it goes through."""
    if inspect.isawaitable(outcome):
        return await outcome
    if isinstance(outcome, AsyncIterator):
        return [item async for item in outcome]
    return list(outcome) if inspect.isgenerator(outcome) else outcome


async def refused(call):
    try:
        await settled(call())
    except rc.Refused as error:
        return type(error), error.code, str(error)
    raise AssertionError("it was not refused")


async def everything(client, live):
    """Call each method of a client and return the answers; tokens of leases are random."""
    seen = []

    async def note(outcome):
        seen.append(await settled(outcome))
        return seen[-1]

    await note(client.register(*URLS[:2], rc.Page(url=URLS[2], importance=3), {"url": URLS[3]}))
    await note(client.register_many([URLS[4], "ftp://a.example/"]))
    await note(refused(lambda: client.register("ftp://a.example/", "https://a.example/5")))
    crawls = (await settled(client.lease(4, worker="w", ttl_s=60, hosts=["a.example"]))).items
    await note(len(crawls))
    longer = await settled(client.extend(crawls[0], 600))
    await note(longer.expires_at)
    await note(client.report(longer, status=200, digest="1"))
    await note(client.report_many([client.observation(crawls[1], status=404)]))
    await note([await settled(client.release(crawls[2])) for _ in range(2)])
    await note(refused(lambda: client.extend(crawls[2], 60)))
    await note(refused(lambda: client.report(1, digest="")))
    reporter = client.reporter(size=1)
    if isinstance(client, AsyncClient):
        async with reporter:
            reporter.report(crawls[3], status=301, redirect_url="https://b.example/")
    else:
        with reporter:
            reporter.report(crawls[3], status=301, redirect_url="https://b.example/")
    await note(reporter.total)
    live.clock.advance(days=1)
    await note(client.report(URLS[1], status=404))
    await note(client.report(URLS[3], status=301, redirect_url="https://b.example/"))
    await note(client.ping(1))
    await note(client.ping_many([rc.Ping(url=URLS[1], changed_at=START)]))
    await note(client.sitemap("https://a.example/sitemap.xml", SITEMAP))
    await note(client.set_host("a.example", max_concurrency=3, blocked_until=START))
    await note(client.host("a.example"))
    await note(client.open_hours("a.example"))
    await note([host.host for host in await settled(client.hosts())])
    part = await settled(client.hosts_part(sort="-host", limit=1))
    await note(client.hosts_part(part.next_cursor, sort="-host", limit=1))
    subscription = await settled(
        client.subscribe(URLS[0], "https://hub.example/", "s" * 20, host_policy="any")
    )
    await note([item.topic for item in await settled(client.subscriptions())])
    await note((await settled(client.subscription(subscription.id))).state)
    await note(client.unsubscribe(subscription.id))
    part = await settled(client.changes(kinds=["new", "gone"], limit=1))
    await note([change.kind for change in part.items])
    followed = client.follow_changes(part.next_cursor, host="a.example")
    first = await anext(followed) if isinstance(client, AsyncClient) else next(followed)
    await (followed.aclose() if isinstance(client, AsyncClient) else settled(followed.close()))
    assert await note([change.url for change in first.items]) == [URLS[1], URLS[3]]
    webhook = await settled(client.add_webhook("https://a.example/hook", kinds=["gone"]))
    await note([(item.url, item.kinds) for item in await settled(client.webhooks())])
    await note(client.delete_webhook(webhook.id))
    await note(refused(lambda: client.delete_webhook(webhook.id)))
    await note((await settled(client.request_epoch())).status)
    live.service.runner.run_once()
    await note([epoch.epoch for epoch in await settled(client.epochs())])
    await note((await settled(client.epoch())).n_pages)
    await note((await settled(client.plan(2.0, 4.0, limit=1))).items)
    await note((await settled(client.savings(START - timedelta(days=9)))).missing)
    await note(client.schedule(limit=2))
    await note([await settled(client.page(name)) for name in (1, 2, 3, "https://b.example/")])
    await note(refused(lambda: client.page(99)))
    await note(client.change_pages({"add_tags": ["t"]}, host="a.example"))
    await note(client.pages(tag="t"))
    await note(client.count_pages(tag="t"))
    await note(client.recrawl(1, URLS[1]))
    await note(client.page_log(1))
    await note(client.steps())
    await note([need.kind for need in (await settled(client.status())).needs_you])
    await note(client.freshness([1, URLS[1], rc.Copy(url=URLS[2], fetched_at=START)]))
    await note(client.running_leases())
    await note(client.explain_leases("a.example"))
    await note(client.set_budget("1000 crawls"))
    await note(client.budget())
    await note(client.unset_budget())
    await note(client.pause_all(60))
    await note(client.pause())
    await note(client.resume_all())
    await note(client.pause_host("a.example", 60))
    await note(client.resume_host("a.example", site=True))
    await note(client.end_incident("a.example"))
    for act in (client.accept_need, client.withdraw_acceptance):
        with pytest.raises(rc.NotFound, match="No such need"):
            await settled(act("host_paused", "a.example"))
    await note([entry.act for entry in await settled(client.audit())])
    n_leased = len((await settled(client.lease(2, worker="gone"))).items)
    await note([(item.worker, item.running) for item in await settled(client.workers())])
    ended = [await settled(client.return_leases("gone", dry_run=dry)) for dry in (True, False)]
    assert await note([*ended, await settled(client.return_leases("gone"))]) == [n_leased] * 2 + [0]
    assert n_leased > 0
    await settled(client.set_host("b.example", group="g"))
    await note((await settled(client.set_group("g", max_concurrency=2))).members)
    await note((await settled(client.group("g"))).host_queue.concurrency)
    await note([group.n_members for group in await settled(client.groups())])
    await note(client.delete_group("g"))
    stopped = await settled(client.set_url_group("https://b.example/x/", "stop"))
    groups = await settled(client.url_groups("b.example/"))
    assert await note([(each.group, each.state) for each in (stopped, *groups)])
    await settled(client.register("https://b.example/deleted", "https://b.example/too"))
    last = (await settled(client.page("https://b.example/too"))).page_id
    for name in ("https://b.example/deleted", last):
        await note(client.delete_page(name))
        await note(refused(lambda name=name: client.delete_page(name)))
    await note(client.delete_pages(all_pages=True))
    await note(client.delete_host("b.example"))
    await settled(client.close())
    return seen


class Noted:
    """A client whose calls are counted."""

    def __init__(self, client):
        self.client = client
        self.names = set()

    def __getattr__(self, name):
        self.names.add(name)
        return getattr(self.client, name)

    @property
    def __class__(self):
        return type(self.client)


@pytest.mark.dear
def test_both_drive_a_real_service_to_the_same_answers(tmp_path, sqlite_template, monkeypatch):
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    outcomes = []
    for kind in (Client, AsyncClient):
        copy = tmp_path / f"{kind.__name__}.db"
        copy.write_bytes(sqlite_template.read_bytes())
        with running(f"sqlite:///{copy}") as live:
            client = Noted(kind(live.url, now=live.clock))
            outcomes.append(asyncio.run(everything(client, live)))
        assert client.names >= set(methods(kind)), "each method is called"
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][3] == 4


def run(scenario):
    return asyncio.run(scenario())


def test_tasks_share_one_client(sqlite_url):
    async def scenario():
        async with AsyncClient(live.url, now=live.clock) as client:
            await asyncio.gather(*(client.register(url) for url in URLS))
            pages = await asyncio.gather(*(client.page(url) for url in URLS))
            return {page.url for page in pages}

    with running(sqlite_url) as live:
        assert run(scenario) == set(URLS)


def test_reports_of_tasks_go_out_when_a_batch_is_full_or_old(sqlite_url):
    async def scenario():
        async with AsyncClient(live.url, now=live.clock) as client:
            async with client.reporter(size=3, every_s=NEVER_S) as reporter:
                for url in URLS[:4]:
                    reporter.report(url, digest="1")
                await asyncio.to_thread(until, lambda: reporter.total.accepted == 3, "it is sent")
                waiting = reporter.n_waiting
                reporter.flush()
                await asyncio.to_thread(until, lambda: not reporter.n_waiting, "it is flushed")
            async with client.reporter(every_s=0.01) as soon:
                soon.report(URLS[4], digest="1")
                await asyncio.to_thread(until, lambda: soon.total.accepted, "it is sent")
            return waiting, reporter.total.accepted

    with running(sqlite_url) as live:
        assert run(scenario) == (1, 4)


def test_an_invalid_report_of_a_task_is_rejected_alone(sqlite_url):
    rejected = []

    async def scenario():
        async with AsyncClient(live.url, now=live.clock) as client:
            async with client.reporter(on_rejected=lambda *why: rejected.append(why)) as reporter:
                reporter.report(URLS[0], digest="1")
                reporter.report(URLS[1], digest="1" * 300)
                with pytest.raises(TypeError):
                    reporter.report(URLS[2], digest=object())
            return reporter.total.accepted

    with running(sqlite_url) as live:
        assert run(scenario) == 1
    ((item, why),) = rejected
    assert (item.url, why.field) == (URLS[1], "digest")


def test_a_lease_request_of_a_task_carries_the_reports_that_wait(sqlite_url):
    rejected = []

    async def scenario():
        async with AsyncClient(live.url, now=live.clock) as client:
            await client.register(*URLS)
            options = {"every_s": NEVER_S, "on_rejected": lambda *why: rejected.append(why)}
            async with client.reporter(**options) as reporter:
                (crawl,) = (await reporter.lease(count=1)).items
                reporter.report(crawl, status=200, digest="1")
                reporter.report(crawl, digest="1" * 300)
                leased = await reporter.lease(count=1)
                without = await reporter.lease(count=1)
                return leased, without, reporter.n_waiting, reporter.total

    with running(sqlite_url) as live:
        live.client.put("/hosts/a.example", json={"min_delay_s": 0})
        leased, without, n_waiting, total = run(scenario)
    assert (leased.reported.leases_ended, len(leased.items), without.reported) == (1, 1, None)
    assert (n_waiting, total.accepted, total.n_rejected) == (0, 1, 1)
    assert [why.field for _, why in rejected] == ["digest"]


def test_reports_of_a_task_wait_again_after_a_lease_request_that_failed(sqlite_url):
    async def scenario():
        async with AsyncClient(live.url, now=live.clock) as client:
            async with client.reporter(every_s=NEVER_S) as reporter:
                reporter.report(URLS[0], digest="1")
                async with AsyncClient(f"http://127.0.0.1:{free_port()}", patience_s=0) as away:
                    with pytest.raises(rc.Unavailable):
                        await reporter.lease(client=away)
                waiting = reporter.n_waiting
            return waiting, reporter.total.accepted

    with running(sqlite_url) as live:
        assert run(scenario) == (1, 1)


def test_a_cancelled_lease_request_of_a_task_keeps_its_reports(sqlite_url):
    """The end of the reporter waits while a lease request carries reports, then sends them."""

    async def scenario():
        asked = asyncio.Event()

        async def hold(_request):
            asked.set()
            await asyncio.Event().wait()

        async with AsyncClient(live.url, now=live.clock) as client:
            reporter = await client.reporter(every_s=NEVER_S).__aenter__()
            reporter.report(URLS[0], digest="1")
            async with AsyncClient(transport=httpx.MockTransport(hold)) as away:
                leasing = asyncio.create_task(reporter.lease(client=away))
                await asked.wait()
                closing = asyncio.create_task(reporter.close())
                done, _ = await asyncio.wait([closing], timeout=0.05)
                assert (done, reporter.n_waiting) == (set(), 1)
                leasing.cancel()
                await closing
            assert leasing.cancelled()
            return reporter.n_waiting, reporter.total.accepted

    with running(sqlite_url) as live:
        assert run(scenario) == (0, 1)


def test_a_service_that_stays_away_leaves_the_reports_with_the_task():
    async def scenario():
        waits = []

        async def wait(seconds):
            waits.append(seconds)
            return len(waits) == 3

        async with AsyncClient(f"http://127.0.0.1:{free_port()}", wait=wait) as client:
            reporter = await client.reporter(every_s=NEVER_S).__aenter__()
            reporter.report(URLS[0], digest="1")
            with pytest.raises(rc.Undelivered, match=r"1 item .*is it running\?") as left:
                await reporter.close()
            with pytest.raises(rc.Unavailable):
                reporter.report(URLS[1], digest="1")
        return len(waits), left.value.items[0].url

    assert run(scenario) == (3, URLS[0])


def test_a_lost_answer_counts_once(sqlite_url):
    class Forgetful(httpx.AsyncHTTPTransport):
        n_answers = 0

        async def handle_async_request(self, request):
            response = await super().handle_async_request(request)
            self.n_answers += 1
            if self.n_answers % 2:
                await response.aclose()
                raise httpx.ReadError("the answer was lost")
            return response

    async def scenario():
        options = {"transport": Forgetful(), "now": lambda: START + timedelta(hours=1)}
        async with AsyncClient(live.url, **options) as client:
            return await client.report(URLS[0], digest="1")

    with running(sqlite_url) as live:
        live.clock.advance(hours=1)
        assert run(scenario).duplicate == 1
