"""A TCP proxy on loopback that can cut, stall or slow its connections."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self

DELAY_S = 0.05
"""Delay of every piece of data in the mode `delay`, seconds."""
PIECE = 65_536
"""Maximum size of a piece of data, bytes."""


class Network:
    """An event loop in its own thread, which runs all proxies."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="network", daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the loop and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def proxy(self, port: int, target: int) -> "Proxy":
        """Return a proxy from a port to a target port."""
        proxy = Proxy(self, port, target)
        self.run(proxy.listen())
        return proxy

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Proxy:
    """A forwarder from one port to another with a mode: pass, delay, stall or cut."""

    def __init__(self, network: Network, port: int, target: int) -> None:
        self.network = network
        self.port = port
        self.target = target
        self.mode = "pass"
        self.moving = asyncio.Event()
        self.moving.set()
        self.open: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Accept connections."""
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def set(self, mode: str) -> None:
        """Change the mode; `cut` resets every connection and refuses new ones."""
        self.network.run(self._set(mode))

    async def _set(self, mode: str) -> None:
        self.mode = mode
        if mode == "stall":
            self.moving.clear()
        else:
            self.moving.set()
        if mode == "cut":
            for writer in self.open:
                writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == "cut":
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, back}
        self.open |= ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, back))
                both.create_task(self._forward(there, writer))
        finally:
            self.open -= ends
            for end in ends:
                end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy one direction until either end closes; a reset of one end resets the other."""
        try:
            while data := await reader.read(PIECE):
                await self.moving.wait()
                if self.mode == "delay":
                    await asyncio.sleep(DELAY_S)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            writer.transport.abort()
