"""An error names what a machine lacks: everything for the image at once, or one program."""

import shutil

import pytest
from support import apt, image
from support.apt import NotInstalled
from support.image import CannotBuild, prepare


def machine(monkeypatch: pytest.MonkeyPatch, user: int, *programs: str) -> list[list[str]]:
    """Pretend a user and installed programs; return the commands that would be run."""
    commands: list[list[str]] = []
    monkeypatch.setattr(image.os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name, path="": name if name in programs else None)
    monkeypatch.setattr(image, "finish", commands.append)
    monkeypatch.setattr(apt, "finish", commands.append)
    return commands


def test_without_root_and_programs_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = machine(monkeypatch, 1000, "apt-get", "buildah")
    with pytest.raises(CannotBuild, match=r"not root.*sudo make.*`apt-get install debootstrap`"):
        prepare()
    assert commands == []


def test_root_without_apt_reads_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 0)
    with pytest.raises(CannotBuild, match="buildah and debootstrap not installed"):
        prepare()


def test_root_with_apt_installs_what_is_missing_only(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = machine(monkeypatch, 0, "apt-get", "debootstrap")
    prepare()
    assert [command[-1] for command in commands] == ["update", "buildah"]


def test_a_machine_that_has_everything_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = machine(monkeypatch, 0, "apt-get", *image.PROGRAMS)
    prepare()
    assert commands == []


@pytest.mark.parametrize(("user", "programs"), [(1000, ["apt-get"]), (0, [])])
def test_a_program_that_cannot_be_installed_is_named_with_its_package(monkeypatch, user, programs):
    commands = machine(monkeypatch, user, *programs)
    with pytest.raises(NotInstalled, match=r"needs nginx, .*: `sudo apt-get install nginx-light`"):
        apt.program("nginx", "nginx-light")
    assert commands == []


def test_root_with_apt_installs_the_package_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = machine(monkeypatch, 0, "apt-get")
    with pytest.raises(NotInstalled):  # the package that was made up brings no program
        apt.program("nginx", "nginx-light")
    assert [command[-1] for command in commands] == ["update", "nginx-light"]
