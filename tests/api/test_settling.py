"""Requests that wait for jobs of other threads."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any
from unittest.mock import patch

from service.api.requests.settling import settled


def test_jobs_of_a_batch_share_one_wake_up() -> None:
    async def run() -> tuple[list[int], int]:
        loop = asyncio.get_running_loop()
        with patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe) as call:
            jobs: list[Future[int]] = [Future() for _ in range(50)]
            waits = [asyncio.create_task(settled(job)) for job in jobs]
            await asyncio.sleep(0)
            for i, job in enumerate(jobs):
                job.set_result(i)
            return await asyncio.gather(*waits), call.call_count

    results, n_calls = asyncio.run(run())
    assert results == list(range(50))
    assert n_calls == 1


def test_no_job_is_forgotten_while_threads_settle_beside_the_loop() -> None:
    async def run() -> int:
        n_done = 0
        for _ in range(100):
            jobs: list[Future[None]] = [Future() for _ in range(40)]
            waits = [asyncio.create_task(settled(job)) for job in jobs]
            await asyncio.sleep(0)

            def settle(some: list[Future[None]]) -> None:
                for job in some:
                    job.set_result(None)

            threads = [threading.Thread(target=settle, args=(jobs[i::4],)) for i in range(4)]
            for thread in threads:
                thread.start()
            async with asyncio.timeout(30):
                await asyncio.gather(*waits)
            for thread in threads:
                thread.join()
            n_done += len(waits)
        return n_done

    assert asyncio.run(run()) == 4_000


def test_a_cancelled_request_leaves_the_others_awake() -> None:
    async def run() -> list[Any]:
        jobs: list[Future[int]] = [Future() for _ in range(3)]
        waits = [asyncio.create_task(settled(job)) for job in jobs]
        await asyncio.sleep(0)
        for job in jobs[:2]:
            job.set_result(1)
        waits[0].cancel()
        waits[2].cancel()
        results = await asyncio.gather(*waits, return_exceptions=True)
        return [*results, jobs[2].cancelled()]

    first, second, third, withdrawn = asyncio.run(run())
    assert isinstance(first, asyncio.CancelledError)
    assert second == 1
    assert isinstance(third, asyncio.CancelledError)
    assert withdrawn
