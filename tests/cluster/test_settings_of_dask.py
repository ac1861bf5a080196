"""Settings of several databases and machines: what is chosen, and what is refused."""

import sys
from importlib.metadata import entry_points

import pytest

from recrawl_cluster.epochs.actors import Actors
from recrawl_cluster.epochs.hosts import ByHosts
from service.epochs.parts import in_this_process
from service.model import plugins
from service.model.errors import InvalidSettings
from service.runtime.epoch_processes import chosen_processes
from service.runtime.settings import read_settings
from service.storage import open_store

SHARDED = {"cluster": "cluster.toml"}


def pool_of(**given):
    """Return the pool whose method is the chosen runner."""
    return chosen_processes(read_settings(**SHARDED, **given)).spread.__self__


def test_without_a_setting_one_process_computes_epochs():
    for given in ({}, SHARDED, {**SHARDED, "dask": ""}):
        chosen = chosen_processes(read_settings(**given))
        assert chosen.spread is in_this_process
        chosen.close()


def test_actors_are_chosen_by_settings():
    local, far = pool_of(dask="local"), pool_of(dask="tcp://dask:8786")
    assert isinstance(local, Actors)
    assert (local.address, local.certificates) == ("local", None)
    assert (far.address, far.security()) == ("tcp://dask:8786", None)


def test_one_database_on_postgres_is_computed_in_parts_by_hosts():
    one = {"database_url": "postgresql://postgres@127.0.0.1/recrawl", "dask": "tcp://dask:8786"}
    runner = chosen_processes(read_settings(**one)).spread.__self__
    assert isinstance(runner, ByHosts)
    assert runner.actors.address == "tcp://dask:8786"


def test_certificates_of_dask_are_files_and_come_together(tmp_path):
    files = {name: tmp_path / f"{name}.pem" for name in ("dask_ca", "dask_cert", "dask_key")}
    address = {"dask": "tls://dask:8786"}
    with pytest.raises(InvalidSettings, match=r"RECRAWL_DASK_CA: there is no file .*dask_ca\.pem"):
        read_settings(**SHARDED, **address, **files)
    for path in files.values():
        path.write_text("")
    security = pool_of(**address, **files).security()
    assert security.require_encryption
    assert security.tls_ca_file == str(files["dask_ca"])
    assert security.tls_client_cert == str(files["dask_cert"])
    assert security.tls_client_key == str(files["dask_key"])
    with pytest.raises(InvalidSettings, match="RECRAWL_DASK_CERT and RECRAWL_DASK_KEY must be set"):
        read_settings(**SHARDED, **address, dask_ca=files["dask_ca"])
    with pytest.raises(InvalidSettings, match="are for RECRAWL_DASK=tls"):
        read_settings(**SHARDED, dask="local", **files)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"dask": "local"}, "RECRAWL_DATABASE_URL names a SQLite file; unset one of them"),
        ({**SHARDED, "dask": "dask:8786"}, "RECRAWL_DASK must be local, tls://HOST:PORT or tcp:"),
        ({**SHARDED, "dask": "http://dask:8786"}, "not 'http://dask:8786'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given, sentence):
    with pytest.raises(InvalidSettings) as refused:
        read_settings(**given)
    assert sentence in str(refused.value)


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    for name in ("dask", "actors"):
        monkeypatch.delitem(sys.modules, f"recrawl_cluster.epochs.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(InvalidSettings) as refused:
        chosen_processes(read_settings(**SHARDED, dask="local"))
    assert (
        "RECRAWL_DASK needs the package dask; pip install 'recrawl[cluster]'"
        in refused.value.detail
    )


@pytest.fixture
def without_cluster(monkeypatch):
    """A service beside which no cluster is installed."""

    def others(**chosen):
        return [one for one in entry_points(**chosen) if "recrawl_cluster" not in one.value]

    monkeypatch.setattr(plugins, "entry_points", others)


def test_without_the_cluster_each_of_its_settings_names_the_install(without_cluster, tmp_path):
    install = "needs the distribution recrawl-cluster; pip install 'recrawl[cluster]', or unset"
    with pytest.raises(InvalidSettings) as refused:
        chosen_processes(read_settings(**SHARDED, dask="local"))
    assert refused.value.detail == f"RECRAWL_DASK {install} RECRAWL_DASK"
    with pytest.raises(InvalidSettings) as refused:
        open_store(f"cluster:///{tmp_path}/cluster.toml", 2)
    assert refused.value.detail == f"RECRAWL_CLUSTER {install} RECRAWL_CLUSTER"
