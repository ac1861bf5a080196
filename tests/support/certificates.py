"""Certificates of a test's own authority."""

from pathlib import Path

from support.image import finish


def certificate_authority(folder: Path) -> None:
    """Write ca.crt, and tls.crt with tls.key that it has signed."""
    folder.mkdir(exist_ok=True)
    authority, key = folder / "ca.crt", folder / "tls.key"
    new = "openssl req -newkey rsa:2048 -nodes -subj"
    finish(f"{new} /CN=ca -x509 -days 2 -keyout {folder}/ca.key -out {authority}".split())
    finish(f"{new} /CN=dask -keyout {key} -out {folder}/tls.csr".split())
    finish(
        f"openssl x509 -req -days 2 -in {folder}/tls.csr -CA {authority} -CAkey {folder}/ca.key"
        f" -CAcreateserial -out {folder}/tls.crt".split()
    )
