"""Windows and blackouts in files of settings."""

import json

from support.store_cases import T0

from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness
from service.transfer.hosts import add_settings, settings_file, write_settings

POLITE = Politeness()
NIGHT = ("Mon-Fri 22:00-06:00 Europe/Berlin",)
DARK = ("2026-12-24/2026-12-26 Europe/Berlin",)


def test_windows_survive_an_export_and_an_import(sql_store, tmp_path):
    with sql_store.begin() as tx:
        change_host(tx, "a.example", {"windows": NIGHT, "blackouts": DARK}, T0, POLITE)
        change_host(tx, "b.example", {"windows": ()}, T0, POLITE)
        change_group(tx, "g", {"windows": NIGHT}, ["b.example"], T0, POLITE)
    path = settings_file(tmp_path / "all.csv")
    list(write_settings(path, sql_store, T0))
    with sql_store.begin() as tx:
        for host in ("a.example", "b.example"):
            change_host(tx, host, {"windows": None, "blackouts": None, "group": None}, T0, POLITE)
        change_group(tx, "g", {"windows": None}, [], T0, POLITE)
    list(add_settings(path, sql_store, POLITE))
    with sql_store.begin(write=False) as tx:
        a, b, group = tx.host("a.example"), tx.host("b.example"), tx.group("g")
    assert (a.windows, a.blackouts) == (NIGHT, DARK)
    assert (b.windows, b.blackouts, b.group) == ((), None, "g")
    assert group.host_queue.windows == NIGHT


def test_a_wrong_window_skips_its_line_and_names_the_place(sql_store, tmp_path):
    path = tmp_path / "all.csv.hosts.ndjson"
    lines = [{"host": "a.example", "windows": ["nights"]}, {"host": "b.example", "windows": []}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (step,) = add_settings(path, sql_store, POLITE)
    assert step.n_hosts == 1
    (skipped,) = step.skipped
    assert "windows[0]" in skipped.reason
    assert "send such as" in skipped.reason
