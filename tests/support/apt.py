"""Programs of Debian that tests need beside Python."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from support.image import finish

SYSTEM = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
"""Folders of programs, with those of servers, which users may not have in their PATH."""


class NotInstalled(Exception):
    """A program is not here, and this user cannot install it."""


def may_install() -> bool:
    """Return whether apt-get is here and may install."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def program(name: str, package: str) -> str:
    """Return the path of a program, installed where apt-get may; raise `NotInstalled`."""
    install({name: package})
    found = shutil.which(name, path=SYSTEM)
    if found is None:
        raise NotInstalled(
            f"this test needs {name}, which is not in the PATH: `sudo apt-get install {package}`"
        )
    return found


def install(packages: Mapping[str, str]) -> None:
    """Install the packages whose program or folder is not here, where apt-get may."""
    missing = [
        package
        for needed, package in packages.items()
        if shutil.which(needed, path=SYSTEM) is None and not Path(needed).is_dir()
    ]
    if missing and may_install():
        finish(["apt-get", "update"])
        finish(["apt-get", "install", "--yes", "--no-install-recommends", *missing])
