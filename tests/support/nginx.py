"""nginx, from apt."""

import os
import shutil

from support.image import finish


def program() -> str:
    """Return nginx, installed where apt-get may."""
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        finish(["apt-get", "update"])
        finish(["apt-get", "install", "--yes", "--no-install-recommends", "nginx-light"])
    return found or "/usr/sbin/nginx"
