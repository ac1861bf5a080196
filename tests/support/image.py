"""The image, built and run by Debian's buildah: no container engine, no registry.

The folder `build/image` keeps the base, the wheels and the layers for the next build.
"""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "image"
PROGRAMS = ("buildah", "debootstrap")
SUITE = "bookworm"
"""Debian release of the base: its Python is the one of the Dockerfile."""
PACKAGES = ("python3", "python3-venv", "python-is-python3", "ca-certificates")
BASE, IMAGE = "localhost/recrawl-base", "localhost/recrawl"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUILD_LIMIT_S = 900
"""Time limit of one program of the build, seconds."""


class CannotBuild(Exception):
    """This machine cannot build the image."""


def prepare() -> None:
    """Install the programs where apt-get may; raise CannotBuild with all that is missing."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    problems = []
    if os.geteuid() != 0:
        problems.append("you are not root, and buildah mounts file systems: use `sudo make`")
    elif missing and shutil.which("apt-get"):
        finish(["apt-get", "update"])
        finish(["apt-get", "install", "--yes", "--no-install-recommends", *missing])
        return
    if missing:
        problems.append(
            f"{' and '.join(missing)} not installed: `apt-get install {' '.join(missing)}`"
        )
    if problems:
        raise CannotBuild("the image cannot be built here: " + "; ".join(problems))


def finish(words: list[str]) -> str:
    """Return what a program prints; raise AssertionError with its errors if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    assert done.returncode == 0, f"{words[0]} failed\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


def command(*words: str) -> list[str]:
    """Return a command line of buildah on our own storage."""
    return ["buildah", "--root", f"{FOLDER}/storage", "--runroot", f"{FOLDER}/run", *words]


def buildah(*words: str) -> str:
    """Run buildah to its end; return what it prints."""
    return finish(command(*words)).strip()


def has_base() -> bool:
    """Return whether an earlier build left its base."""
    return bool(buildah("images", "--quiet", "--filter", f"reference={BASE}"))


def build_base() -> None:
    """Make an image of a minimal Debian with its Python."""
    tree = FOLDER / "base"
    shutil.rmtree(tree, ignore_errors=True)
    packages = ",".join(PACKAGES)
    finish(["debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(tree)])
    for folder in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(tree / folder)
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, str(tree), "/")
    buildah("config", "--env", f"PATH={SYSTEM_PATH}", container)
    buildah("commit", "--quiet", container, BASE)
    buildah("rm", container)
    shutil.rmtree(tree)


def download_wheels() -> Path:
    """Fetch what the locks name, of the hashes they name; return the folder."""
    wheels = FOLDER / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes"]
    pip += ["--only-binary", ":all:", "--python-version", "3.11", "--dest", str(wheels)]
    for lock in ("requirements.txt", "requirements-build.txt"):
        finish([*pip, "--requirement", str(ROOT / "deploy" / lock)])
    return wheels


def build() -> None:
    """Build the image from the Dockerfile as it stands."""
    wheels = download_wheels()
    if not has_base():
        build_base()
    arguments = {"BASE": BASE, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
    buildah(
        *("bud", "--isolation", "chroot", "--format", "docker", "--layers"),
        *(f"--build-arg={name}={value}" for name, value in arguments.items()),
        *("--volume", f"{wheels}:/wheels:ro", "--tag", IMAGE, str(ROOT)),
    )


def layers() -> list[tuple[str, int]]:
    """Return the instruction and the size of each layer, bytes; the base comes first."""
    image = json.loads(buildah("inspect", "--type", "image", IMAGE))
    sizes = [layer["size"] for layer in json.loads(image["Manifest"])["layers"]]
    history = image["Docker"]["history"]
    steps = [step["created_by"] for step in history if not step.get("empty_layer")]
    return list(zip(steps, sizes, strict=True))


@dataclass
class Container:
    """A container of the image, its configuration and its files."""

    name: str
    config: dict[str, Any]
    root: Path
    data: Path | None = None
    """Folder that a read-only run mounts at /data."""

    def run(self, *words: str, **env: str) -> list[str]:
        """Return the command line that runs words in the container."""
        options = [f"--env={name}={value}" for name, value in env.items()]
        return command("run", "--isolation", "chroot", *options, self.name, "--", *words)

    def run_read_only(self, *words: str, **env: str) -> list[str]:
        """Return the command line that runs words as compose does: root read-only, /tmp empty."""
        mounts = [
            'mount --bind "$0" "$0"',
            'mount -o remount,bind,ro "$0"',
            'mount -t tmpfs tmpfs "$0/tmp"',
            'mount -t proc proc "$0/proc"',
            *([f'mount --bind {shlex.quote(str(self.data))} "$0/data"'] if self.data else []),
        ]
        folder = f"--chdir={self.config['WorkingDir']}"
        change_root = (
            f'exec chroot --userspec="$1" "$0" env --ignore-environment {folder} "${{@:2}}"'
        )
        script = " && ".join([*mounts, 'cd "$0"', change_root])
        variables = [*self.config["Env"], *(f"{name}={value}" for name, value in env.items())]
        user = f"{self.config['User']}:{self.config['User']}"
        unshared = ["unshare", "--mount", "bash", "-c", script, str(self.root), user]
        return [*unshared, *variables, *words]


@contextmanager
def alone() -> Iterator[None]:
    """Keep other processes off the folder: the layers are not made for two at once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def container() -> Iterator[Container]:
    """Make a container of the image; afterwards no mount of it is left."""
    name = buildah("from", IMAGE)
    try:
        image = json.loads(buildah("inspect", "--type", "image", IMAGE))
        yield Container(name, image["Docker"]["config"], Path(buildah("mount", name)))
    finally:
        buildah("rm", name)
        subprocess.run(["umount", FOLDER / "storage" / "overlay"], check=False, capture_output=True)
