"""nginx, from apt."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path

import httpx

from support import apt
from support.live_server import until
from support.processes import free_port

SITE = """
daemon off;
user {user};
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    server {{
        listen 127.0.0.1:{port};
        root {folder}/site;
        {options}
    }}
}}
"""


def program() -> str:
    """Return nginx, installed where apt-get may."""
    return apt.program("nginx", "nginx-light")


@contextmanager
def site(folder: Path, options: str = "") -> Iterator[str]:
    """Serve files by nginx."""
    port, file = free_port(), folder / "nginx.conf"
    file.write_text(SITE.format(user=getuser(), folder=folder, port=port, options=options))
    process = subprocess.Popen([program(), "-c", str(file), "-p", str(folder)])
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: served(url), "nginx serves")
        yield url
    finally:
        process.terminate()
        process.wait()


def served(url: str) -> bool:
    try:
        return httpx.get(f"{url}/0.html").status_code == 200
    except httpx.TransportError:
        return False
