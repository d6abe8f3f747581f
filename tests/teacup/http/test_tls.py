"""https with certificates of one's own: what is trusted, and what is said if it is not."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from datadelay.api.config import DelayServeConfig
from datadelay.client import DelayClient
from datadelay.errors import ConfigInvalid, DelayAnswerNotUnderstood, DelayServerUnavailable
from teacup.base.errors import SettingsInvalid
from teacup.http.server.serving import listen
from tests.support.delay_server import RunningServer, running_server


@dataclass
class Files:
    """Certificates, in PEM."""

    ours: str
    other: str
    server: Path
    key: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Makes a CA with a certificate for this machine, and another CA."""
    folder = tmp_path_factory.mktemp("tls")
    ours, other = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(folder / "ours.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    certificate = ours.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    return Files(str(folder / "ours.pem"), str(folder / "other.pem"), folder / "server.pem", folder / "server.key")


@pytest.fixture(scope="module")
def server(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Starts a server by https."""
    folder = tmp_path_factory.mktemp("served")
    with running_server(folder, tls_certificate=files.server, tls_key=files.key) as running:
        yield running


def listed(server: RunningServer, verify: bool | str) -> int:
    """Returns how many delays a client with these certificates finds."""
    url = server.url.replace("http:", "https:")
    with DelayClient(url, server.secrets["reader"], verify=verify, retries=2) as client:
        return len(client.list())


def test_a_ca_of_ones_own_counts_whatever_the_environment_says(
    server: RunningServer, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's is for clients that name none."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", files.other)
    assert listed(server, files.ours) == 0

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", files.ours)
    assert listed(server, True) == 0


def test_a_certificate_that_is_not_trusted_is_reported_once(
    server: RunningServer, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be the same at every attempt."""
    with pytest.raises(DelayAnswerNotUnderstood, match=r"not trusted: .*ca_bundle"):
        listed(server, files.other)

    assert not caplog.messages


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Makes certificates with their keys, by what is wrong with them, and the CA that signed them."""
    folder, ca, now = tmp_path_factory.mktemp("faulty"), trustme.CA(), datetime.now(UTC)
    ca.cert_pem.write_to_path(folder / "ca.pem")
    times = {"expired": (now - timedelta(days=9), now - timedelta(days=1)), "early": (now + timedelta(days=1), None)}
    names = {"elsewhere": ("delay.example", "10.1.2.3")}
    found = {"ca": folder / "ca.pem"}
    for name in (*times, *names):
        begin, end = times.get(name, (None, None))
        made = ca.issue_cert(*names.get(name, ("127.0.0.1",)), not_before=begin, not_after=end)
        found[name] = folder / f"{name}.pem"
        made.private_key_and_cert_chain_pem.write_to_path(found[name])
    return found


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("expired", "trusted: .*expired; renew"),
        ("early", "trusted: .*not yet valid; .*clock"),
        ("elsewhere", r"not valid for '127.0.0.1'; .*delay.example, 10.1.2.3: "),
    ],
)
def test_what_is_wrong_with_a_certificate_decides_the_remedy(
    faulty: dict[str, Path], tmp_path: Path, which: str, message: str
) -> None:
    """Another CA would not help."""
    certificate = faulty[which]

    with (
        running_server(tmp_path, tls_certificate=certificate, tls_key=certificate) as server,
        pytest.raises(DelayAnswerNotUnderstood, match=message) as raised,
    ):
        listed(server, str(faulty["ca"]))

    assert "ca_bundle" not in str(raised.value)


@pytest.mark.parametrize(("which", "message"), [("expired", "has expired"), ("early", "not yet valid")])
def test_a_server_refuses_a_certificate_that_clients_would_refuse(
    faulty: dict[str, Path], tmp_path: Path, which: str, message: str
) -> None:
    """By its dates; its name says nothing here."""
    settings = {"database": f"sqlite:///{tmp_path}/delay.db", "port": 0}
    wrong, right = faulty[which], faulty["elsewhere"]

    with pytest.raises(SettingsInvalid, match=rf"tls_certificate: .*\n  .*{which}.pem .*{message}"):
        listen(DelayServeConfig(tls_certificate=wrong, tls_key=wrong, **settings))
    listen(DelayServeConfig(tls_certificate=right, tls_key=right, **settings)).close()


def test_missing_certificates_are_named_before_anything_is_sent() -> None:
    """By the argument."""
    with pytest.raises(ConfigInvalid, match=r"verify '/missing\.pem'"):
        DelayClient("https://127.0.0.1:1", verify="/missing.pem")


@pytest.fixture
def encrypted(files: Files, tmp_path: Path) -> Path:
    """Makes the server's key with a password."""
    path = tmp_path / "encrypted.key"
    command = ["openssl", "pkey", "-in", str(files.key), "-aes256", "-passout", "pass:secret", "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.mark.parametrize(
    ("certificate", "key", "message"),
    [
        ("/missing.pem", "server.key", r"tls_certificate: .*\n  /missing.pem .*No such file"),
        ("server.key", "server.key", r"tls_certificate: .*\n  .*server.key holds no certificate"),
        ("server.pem", "/missing.key", r"tls_key: .*\n  /missing.key .*No such file"),
        ("server.pem", "ours.pem", r"tls_key: .*\n  .*ours.pem .*no private key"),
        ("server.pem", None, r"tls_key: .*\n  .*server.pem .*no private key"),
        (
            "server.pem",
            "encrypted.key",
            r"tls_key: .*\n  .*encrypted.key .*needs no password",
        ),
        ("ours.pem", "server.key", r"tls_key: .*\n  .*server.key .*another certificate .*ours.pem"),
        (None, "server.key", r"tls_key: .*\n  .*server.key is given without tls_certificate"),
    ],
)
def test_a_server_names_the_key_and_the_file_that_is_wrong(
    files: Files, encrypted: Path, tmp_path: Path, certificate: str | None, key: str | None, message: str
) -> None:
    """Before it serves anything."""
    folder = files.server.parent
    paths = {"encrypted.key": encrypted}
    given = {
        name: paths.get(file, folder / file)
        for name, file in (("tls_certificate", certificate), ("tls_key", key))
        if file is not None
    }
    config = DelayServeConfig(database=f"sqlite:///{tmp_path}/delay.db", port=0, **given)

    with pytest.raises(SettingsInvalid, match=message):
        listen(config)


def test_the_wrong_one_of_http_and_https_is_named(server: RunningServer, tmp_path: Path) -> None:
    """In either direction, and without the words of libraries."""
    with DelayClient(server.url, retries=0) as client, pytest.raises(DelayServerUnavailable) as plain:
        client.list()
    with (
        running_server(tmp_path) as unprotected,
        DelayClient(unprotected.url.replace("http:", "https:"), retries=0) as client,
        pytest.raises(DelayServerUnavailable) as encrypted,
    ):
        client.list()

    assert "write https:" in str(plain.value)
    assert "write http:" in str(encrypted.value)
    assert "Pool" not in f"{plain.value} {encrypted.value}"
