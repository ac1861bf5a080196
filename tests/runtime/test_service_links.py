"""Variables that Kubernetes sets for Services, beside settings that are spelt wrong."""

import os

import pytest

from service.model.errors import InvalidSettings
from service.runtime.service_links import service_links
from service.runtime.settings import Settings, read_settings


def links(service, host="10.96.3.7", ports=((8000, "tcp", "http"), (9090, "udp", ""))):
    """Return what Kubernetes sets, as its kubelet/envvars writes it."""
    address = f"[{host}]" if ":" in host else host
    first, protocol, _ = ports[0]
    found = {
        f"{service}_SERVICE_HOST": host,
        f"{service}_SERVICE_PORT": str(first),
        f"{service}_PORT": f"{protocol}://{address}:{first}",
    }
    for port, protocol, name in ports:
        of_port = f"{service}_PORT_{port}_{protocol.upper()}"
        if name:
            found[f"{service}_SERVICE_PORT_{name.upper()}"] = str(port)
        found |= {
            of_port: f"{protocol}://{address}:{port}",
            f"{of_port}_PROTO": protocol,
            f"{of_port}_PORT": str(port),
            f"{of_port}_ADDR": host,
        }
    return found


def set_all(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setitem(os.environ, name, value)


@pytest.mark.parametrize("host", ["10.96.3.7", "fd00:10:96::7"])
@pytest.mark.parametrize("service", ["RECRAWL", "RECRAWL_API", "RECRAWL_DASK_SCHEDULER"])
def test_a_service_of_the_name_recrawl_does_not_stop_the_start(monkeypatch, service, host):
    set_all(monkeypatch, links(service, host))
    assert read_settings() == read_settings(bandwidth=None)
    assert service_links(os.environ, "RECRAWL_") == links(service, host).keys()


def test_several_services_are_recognised_each(monkeypatch):
    both = links("RECRAWL") | links("RECRAWL_PORT", "10.96.3.8", [(80, "sctp", "my_port")])
    set_all(monkeypatch, both | links("OTHER"))
    assert service_links(os.environ, "RECRAWL_") == both.keys()
    read_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RECRAWL_SERVICE_HOST", "localhost"),
        ("RECRAWL_SERVICE_PORT", "65536000"),
        ("RECRAWL_SERVICE_PORT", "http"),
        ("RECRAWL_PORT", "8000"),
        ("RECRAWL_PORT", "tcp://10.96.3.8:8000"),
        ("RECRAWL_PORT", "http://10.96.3.7:8000"),
        ("RECRAWL_PORT_8000_TCP", "tcp://10.96.3.7:8001"),
        ("RECRAWL_PORT_8000_TCP_PROTO", "udp"),
        ("RECRAWL_PORT_8000_TCP_PORT", "8001"),
        ("RECRAWL_PORT_8000_TCP_ADDR", "10.96.3.8"),
        ("RECRAWL_SERVICE_PORT_HTTP", "tcp://10.96.3.7:8000"),
        ("RECRAWL_PORT_8000_HTTP", "tcp://10.96.3.7:8000"),
        ("RECRAWL_BANDWITH", "8000"),
    ],
)
def test_a_variable_of_another_value_is_refused_by_name(monkeypatch, name, value):
    set_all(monkeypatch, links("RECRAWL") | {name: value})
    with pytest.raises(InvalidSettings, match=f"{name} is not a setting"):
        read_settings()


@pytest.mark.parametrize("left_out", ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"])
def test_a_service_without_one_of_its_first_variables_is_none(monkeypatch, left_out):
    one = links("RECRAWL", ports=[(8000, "tcp", "")])
    del one[f"RECRAWL{left_out}"]
    set_all(monkeypatch, one)
    with pytest.raises(InvalidSettings) as refused:
        read_settings()
    assert all(f"{name} is not a setting" in str(refused.value) for name in one)


def test_a_setting_that_is_spelt_wrong_beside_links_has_its_nearest_name(monkeypatch):
    set_all(monkeypatch, links("RECRAWL") | {"RECRAWL_BANDWITH": "5"})
    with pytest.raises(InvalidSettings) as refused:
        read_settings()
    expected = "RECRAWL_BANDWITH is not a setting; did you mean RECRAWL_BANDWIDTH?"
    assert str(refused.value) == expected


def test_links_in_a_file_are_settings_that_do_not_exist(monkeypatch, tmp_path):
    monkeypatch.setitem(Settings.model_config, "env_file", tmp_path / ".env")
    lines = [f"{name}={value}\n" for name, value in links("RECRAWL").items()]
    (tmp_path / ".env").write_text("".join(lines))
    with pytest.raises(InvalidSettings, match="RECRAWL_SERVICE_HOST is not a setting"):
        read_settings()
