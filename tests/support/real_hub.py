"""A WebSub hub that others wrote: flask-websub, behind a real socket of this machine."""

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask
from flask_websub.hub import Hub, SQLite3HubStorage
from werkzeug.serving import make_server


class Task:
    """A task that runs in a thread, in the place of a queue of Celery."""

    def __init__(self, work: Callable[..., Any], *, bind: bool) -> None:
        self.work = work
        self.bind = bind
        self.threads: list[threading.Thread] = []

    def delay(self, *args: Any) -> None:
        own = (self, *args) if self.bind else args
        thread = threading.Thread(target=self.work, args=own, daemon=True)
        thread.start()
        self.threads.append(thread)

    def retry(self, countdown: float) -> None:
        raise AssertionError("the subscriber did not take the content")


class Tasks:
    """What the hub needs of Celery."""

    def __init__(self) -> None:
        self.all: list[Task] = []

    def task(self, *_: Any, bind: bool = False, **__: Any) -> Callable[..., Any]:
        def made(work: Callable[..., Any]) -> Task:
            self.all.append(Task(work, bind=bind))
            return self.all[-1]

        return made

    def finish(self) -> None:
        """Wait until all tasks have ended, those that they began included."""
        while threads := [thread for task in self.all for thread in task.threads]:
            for task in self.all:
                task.threads.clear()
            for thread in threads:
                thread.join()


class RealHub:
    """A hub and its publisher."""

    def __init__(self, path: str) -> None:
        self.tasks = Tasks()
        self.hub = Hub(SQLite3HubStorage(path), REQUEST_TIMEOUT=10)
        self.hub.init_celery(self.tasks)
        self.app = Flask("hub")
        self.app.register_blueprint(self.hub.build_blueprint(url_prefix="/hub"))
        self.app.add_url_rule("/feed", "feed", self.feed)
        self.server = make_server("127.0.0.1", 0, self.app, threaded=True)
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.refusal: str | None = None
        self.hub.register_validator(lambda *_: self.refusal)

    @property
    def links(self) -> dict[str, str]:
        return {"Link": f'<{self.url}/hub>; rel="hub", <{self.url}/feed>; rel="self"'}

    def feed(self) -> tuple[str, dict[str, str]]:
        return "<feed/>", self.links

    def publish(self, content: bytes) -> None:
        """Send content to all subscribers, and wait for their answers."""
        encoded = base64.b64encode(content).decode()
        headers = {**self.links, "Content-Type": "application/atom+xml"}
        self.hub.send_change_notification.delay(
            f"{self.url}/feed", {"headers": headers, "content": encoded}
        )
        self.tasks.finish()

    def callbacks(self) -> list[str]:
        """Return the callbacks that the hub has verified."""
        return [callback for callback, _ in self.hub.storage.get_callbacks(f"{self.url}/feed")]


@contextmanager
def real_hub(path: str) -> Iterator[RealHub]:
    """Run a hub during the block."""
    hub = RealHub(path)
    thread = threading.Thread(target=hub.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.tasks.finish()
        hub.server.shutdown()
        thread.join()
        hub.server.server_close()
