"""Identity providers: their keys, tokens of the shapes that they issue, and servers for their keys.

The tokens have the claims that the providers document, with made-up names.
"""

import base64
import json
import socket
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

RSA, OTHER_RSA = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
KINDS = {
    rsa.RSAPrivateKey: (jwt.algorithms.RSAAlgorithm, "RS256"),
    ec.EllipticCurvePrivateKey: (jwt.algorithms.ECAlgorithm, "ES256"),
    ed25519.Ed25519PrivateKey: (jwt.algorithms.OKPAlgorithm, "EdDSA"),
}


def jwk(key: Any, kid: str | None, **fields: Any) -> dict[str, Any]:
    """Return the public key as an entry of a JWKS document; None leaves a field out."""
    algorithm, name = next(KINDS[kind] for kind in KINDS if isinstance(key, kind))
    entry = {
        **json.loads(algorithm.to_jwk(key.public_key())),
        "kid": kid,
        "alg": name,
        "use": "sig",
        **fields,
    }
    return {name: value for name, value in entry.items() if value is not None}


def forged(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """Return a token with a header, claims and a signature of one's own."""
    parts = json.dumps(header).encode(), json.dumps(claims).encode(), signature
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


class Shape(NamedTuple):
    """Tokens of one provider, and the settings with which a service accepts them."""

    issuer: str
    audience: str
    role_claim: str
    roles: str
    """As `RECRAWL_JWT_ROLES`."""
    entry: dict[str, Any]
    """Fields of the provider's keys in its JWKS; None leaves a field out."""
    header: dict[str, Any]
    claims: dict[str, Any]
    """Claims beside issuer, audience and times."""
    subject: str
    role: str

    def settings(self, jwks_url: str) -> dict[str, Any]:
        return {
            "jwt_issuer": self.issuer,
            "jwt_audience": self.audience,
            "jwt_jwks_url": jwks_url,
            "jwt_role_claim": self.role_claim,
            "jwt_roles": self.roles,
        }

    def keys(self) -> dict[str, Any]:
        """Return the provider's JWKS, with a key for encryption beside that of the tokens."""
        encryption = jwk(OTHER_RSA, "for encryption", use="enc", alg="RSA-OAEP")
        return {"keys": [encryption, jwk(RSA, "one", key_ops=None, **self.entry)]}

    def token(self, now: datetime, **changed: Any) -> str:
        """Return a token that runs for an hour; None leaves a claim out."""
        at = int(now.timestamp())
        claims = {"iss": self.issuer, "aud": self.audience, "iat": at, "exp": at + 3_600}
        claims = {**claims, **self.claims, **changed}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, RSA, "RS256", {"kid": "one", **self.header})


CLIENT = "0f6b1c1e-6c43-4f8e-9a55-000000000001"
TENANT = "8a9f0c3e-2b5d-4f6a-8d2e-000000000002"
CERTIFICATE = {"x5t": "5iAHc1J2y7mSxY1t0y0y0w", "x5c": ["MIIDBTCCAe2gAwIBAgIQ"]}
KEYCLOAK = Shape(
    issuer="https://id.example/realms/main",
    audience="recrawl",
    role_claim="resource_access.recrawl.roles",
    roles="",
    entry={"x5t#S256": "kf0_w8Y", **CERTIFICATE},
    header={"typ": "JWT"},
    claims={
        "jti": "trrtcc:5b0f1a36",
        "aud": ["recrawl", "account"],
        "sub": "f1d5ad5c-0f0c-4f32-8a3e-000000000003",
        "typ": "Bearer",
        "azp": "crawler",
        "acr": "1",
        "allowed-origins": ["/*"],
        "realm_access": {"roles": ["default-roles-main", "offline_access", "admin of nothing"]},
        "resource_access": {
            "recrawl": {"roles": ["crawl"]},
            "account": {"roles": ["manage-account", "view-profile"]},
        },
        "scope": "profile email",
        "clientHost": "192.0.2.7",
        "email_verified": False,
        "preferred_username": "service-account-crawler",
        "client_id": "crawler",
    },
    subject="f1d5ad5c-0f0c-4f32-8a3e-000000000003",
    role="crawl",
)
AUTH0 = Shape(
    issuer="https://shop.eu.auth0.com/",
    audience="https://recrawl.example.com/api",
    role_claim="https://recrawl.example.com/roles",
    roles="fleet=crawl",
    entry=CERTIFICATE,
    header={"typ": "JWT"},
    claims={
        "https://recrawl.example.com/roles": ["fleet"],
        "sub": "aB3dE6gH9@clients",
        "aud": ["https://recrawl.example.com/api", "https://shop.eu.auth0.com/userinfo"],
        "scope": "openid read:pages",
        "gty": "client-credentials",
        "azp": "aB3dE6gH9",
        "permissions": ["read:pages"],
    },
    subject="aB3dE6gH9@clients",
    role="crawl",
)
ENTRA = Shape(
    issuer=f"https://login.microsoftonline.com/{TENANT}/v2.0",
    audience=CLIENT,
    role_claim="roles",
    roles="Recrawl.Crawl=crawl,Recrawl.Admin=admin",
    entry={"alg": None, "issuer": "https://login.microsoftonline.com", **CERTIFICATE},
    header={"typ": "JWT", "x5t": "5iAHc1J2y7mSxY1t0y0y0w"},
    claims={
        "nbf": 0,
        "aio": "ASQA2/8YAAAA",
        "azp": "6e74172b-be56-4843-9ff4-e66a39bb12e3",
        "azpacr": "1",
        "oid": "7b1f5c7a-0000-4000-8000-000000000004",
        "rh": "1.AV0A.",
        "roles": ["Recrawl.Crawl"],
        "sub": "7b1f5c7a-0000-4000-8000-000000000004",
        "tid": TENANT,
        "uti": "Bu0AxJ",
        "ver": "2.0",
    },
    subject="7b1f5c7a-0000-4000-8000-000000000004",
    role="crawl",
)
ENTRA_USER = ENTRA._replace(
    role_claim="scp",
    roles="Recrawl.Read=read,Recrawl.Report=report",
    claims={**ENTRA.claims, "roles": None, "scp": "Recrawl.Read Recrawl.Report"},
    role="report",
)
OKTA = Shape(
    issuer="https://shop.okta.com/oauth2/default",
    audience="api://recrawl",
    role_claim="scp",
    roles="recrawl.read=read",
    entry={},
    header={},
    claims={
        "ver": 1,
        "jti": "AT.0mP4JKAZX1iACIT4vbEDF7LpvDVjxypPMf0D7uX39RE",
        "cid": "0oa1b2c3d4e5f6g7h8i9",
        "scp": ["recrawl.read"],
        "sub": "0oa1b2c3d4e5f6g7h8i9",
    },
    subject="0oa1b2c3d4e5f6g7h8i9",
    role="read",
)
WORKFLOW = "repo:octo-org/crawler:ref:refs/heads/main"
GITHUB = Shape(
    issuer="https://token.actions.githubusercontent.com",
    audience="https://recrawl.example.com",
    role_claim="sub",
    roles=f"{WORKFLOW}=report",
    entry=CERTIFICATE,
    header={"typ": "JWT", "x5t": "5iAHc1J2y7mSxY1t0y0y0w"},
    claims={
        "jti": "example-id",
        "sub": WORKFLOW,
        "ref": "refs/heads/main",
        "sha": "example-sha",
        "repository": "octo-org/crawler",
        "repository_owner": "octo-org",
        "actor_id": "12",
        "repository_visibility": "private",
        "run_id": "example-run-id",
        "runner_environment": "github-hosted",
        "actor": "octocat",
        "workflow": "publish",
        "event_name": "workflow_dispatch",
        "ref_type": "branch",
        "job_workflow_ref": "octo-org/octo/.github/workflows/publish.yml@refs/heads/main",
        "nbf": 0,
    },
    subject=WORKFLOW,
    role="report",
)
RFC_9068 = Shape(
    issuer="https://authorization-server.example/",
    audience="https://rs.example/",
    role_claim="scope",
    roles="reademail=read,crawls=crawl",
    entry={},
    header={"typ": "at+jwt"},
    claims={
        "sub": None,
        "client_id": "s6BhdRkqt3",
        "jti": "dbe39bf3a3ba4238a513f51d6e1691c4",
        "scope": "openid profile reademail crawls",
    },
    subject="s6BhdRkqt3",
    role="crawl",
)
SHAPES = {
    "Keycloak": KEYCLOAK,
    "Auth0": AUTH0,
    "Entra": ENTRA,
    "Entra, of a user": ENTRA_USER,
    "Okta": OKTA,
    "GitHub Actions": GITHUB,
    "RFC 9068": RFC_9068,
}


class KeyServer:
    """A provider's server of keys, whose answer a test sets; `asked` has the paths of requests."""

    def __init__(self, document: Any) -> None:
        self.status, self.headers = 200, {}
        self.body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.others: dict[str, bytes] = {}
        """Answers of other addresses, such as those that issue tokens, by path."""
        self.asked: list[str] = []
        self.waits = threading.Event()
        """Set unless the server keeps its answers back."""
        self.waits.set()
        self.url = ""

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        self.waits.wait(60)
        body = self.others.get(request.path, self.body)
        request.send_response(self.status)
        for name, value in {"Content-Length": str(len(body)), **self.headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Print nothing about a client that has left."""


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None):
    """Serve on a free port; yield the port."""
    with QuietServer(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def key_server(document: Any, tls: ssl.SSLContext | None = None) -> Iterator[KeyServer]:
    """Serve a set of keys at /jwks, by HTTPS with a certificate, or by HTTP."""
    keys = KeyServer(document)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.respond(self)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.respond(self)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler, tls) as port:
        keys.url = f"http{'s' if tls else ''}://127.0.0.1:{port}/jwks"
        try:
            yield keys
        finally:
            keys.waits.set()


class Authority(NamedTuple):
    """An authority of one's own: the file of its certificate, and a server's certificate."""

    path: Path
    server: ssl.SSLContext


def authority(folder: Path, *names: str) -> Authority:
    """Return a new authority and the certificate of a server of these names."""
    key, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {uuid.uuid4()}")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.now(UTC)
    new = (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    ) | {"digital_signature": True, "crl_sign": True, "encipher_only": False}
    root = (
        new.subject_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(key_cert_sign=True, decipher_only=False, **usage), critical=True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    alternatives = [
        x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
        for name in names
    ]
    leaf = (
        new.subject_name(subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem, raw = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "ca.pem").write_bytes(root.public_bytes(pem))
    chain = leaf.public_bytes(pem) + own.private_bytes(pem, raw, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(chain)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem")
    return Authority(folder / "ca.pem", server)


class Proxy:
    """A proxy that knows where names lead; `asked` has what it was asked for."""

    def __init__(self, places: dict[str, int]) -> None:
        self.places = places
        """Port on this machine by name."""
        self.asked: list[str] = []
        self.url = ""


@contextmanager
def proxy(places: dict[str, int]) -> Iterator[Proxy]:
    """Serve a proxy for HTTP, and for HTTPS by CONNECT."""
    known = Proxy(places)

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            known.asked.append(f"CONNECT {self.path}")
            place = "127.0.0.1", known.places[self.path.rpartition(":")[0]]
            with socket.create_connection(place) as target:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=copy, args=(target, self.connection), daemon=True)
                back.start()
                copy(self.connection, target)
                back.join()

        def do_GET(self) -> None:
            known.asked.append(f"GET {self.path}")
            parts = urlsplit(self.path)
            port = known.places[parts.hostname or ""]
            with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as upstream:
                upstream.request("GET", parts.path)
                answer = upstream.getresponse()
                body = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as port:
        known.url = f"http://127.0.0.1:{port}"
        yield known


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the source ends."""
    with suppress(OSError):
        while part := source.recv(65_536):
            target.sendall(part)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
