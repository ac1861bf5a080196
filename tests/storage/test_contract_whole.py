"""What plans read: all tags, names of hosts and tags, and pages without the limits of requests."""

import numpy as np
from support.store_cases import register

from service.model.listing import PageTags
from service.storage import open_store

WIDTH = 2


def test_every_tag_of_every_page_is_read_with_the_names_apart(queue_store):
    with queue_store.begin(write=False) as tx:
        assert len(tx.load_tags()) == 0
    ids = register(queue_store, 4)
    other = register(queue_store, 1, host="other.example")
    pairs = {(int(ids[0]), "news"), (int(ids[0]), "daily"), (int(other[0]), "news")}
    with queue_store.begin() as tx:
        page_id, tag = zip(*sorted(pairs), strict=True)
        tx.add_tags(PageTags(page_id=np.array(page_id), tag=np.array(tag, object)))
    with queue_store.begin(write=False) as tx:
        tags = tx.load_tags()
        names = tx.tag_names(np.unique(tags.tag_id))
        read = zip(tags.page_id.tolist(), tags.tag_id.tolist(), strict=True)
        assert {(page, names[tag_id]) for page, tag_id in read} == pairs
        assert tx.tag_names(np.array([999], np.int64)) == {}
        columns = tx.load_columns()
        pages, hosts = columns.page_id, columns.host_id
        named = tx.host_names(np.append(np.unique(hosts), 999))
        assert [named[host] for host in hosts.tolist()] == [
            "example.org" if page in ids else "other.example" for page in pages.tolist()
        ]
        assert len(named) == 2
        assert tx.host_names(np.zeros(0, np.int64)) == {}


def test_a_whole_reading_sees_one_instant(queue_store):
    register(queue_store, 2)
    with queue_store.read_whole() as tx:
        before = len(tx.load_columns())
        register(queue_store, 3, host="other.example")
        assert len(tx.load_columns()) == before == 2
    with queue_store.begin(write=False) as tx:
        assert len(tx.load_columns()) == 5


def test_a_whole_reading_has_no_limit_of_time_and_the_next_request_has(postgres_url):
    store = open_store(postgres_url, WIDTH, timeout_s=7)

    def limits(opened):
        with opened as tx:
            return tx.scalar("SHOW statement_timeout"), tx.scalar("SHOW lock_timeout")

    try:
        request = limits(store.begin(write=False))
        assert request[0] == "7s"
        assert limits(store.read_whole())[0] == "0"
        assert limits(store.begin(write=False)) == request
    finally:
        store.close()
