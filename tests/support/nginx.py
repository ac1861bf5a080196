"""nginx, from apt."""

from support import apt


def program() -> str:
    """Return nginx, installed where apt-get may."""
    return apt.program("nginx", "nginx-light")
