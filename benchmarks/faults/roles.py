"""The work of each kind of client process."""

from benchmarks.faults.clients import KINDS, Client, Task
from benchmarks.faults.feed_clients import follow, receive

ROLES = {**KINDS, "follower": follow}


def work(kind: str, task: Task) -> None:
    """Repeat the work of one kind of client until the process ends."""
    if kind == "receiver":
        receive(task)
    client, turn = Client(task), ROLES[kind]
    while True:
        turn(client)
