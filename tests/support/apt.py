"""Programs of Debian that tests need beside Python."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from support.image import finish


def may_install() -> bool:
    """Return whether apt-get is here and may install."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Mapping[str, str]) -> None:
    """Install the packages whose program or folder is not here, where apt-get may."""
    missing = [
        package
        for needed, package in packages.items()
        if shutil.which(needed) is None and not Path(needed).is_dir()
    ]
    if missing and may_install():
        finish(["apt-get", "update"])
        finish(["apt-get", "install", "--yes", "--no-install-recommends", *missing])
