"""A broker that lets nobody do anything without a login and an ACL, in every way that a job may log in.

plain   without a login, as a superuser: for the test itself
login   SASL_PLAINTEXT: SCRAM-SHA-512, OAUTHBEARER (with tokens that are not signed)
secure  SASL_SSL: the same
mutual  SSL, with a client's certificate, whose common name is the user
"""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import trustme
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from deploy.broker.broker import Broker
from deploy.broker.lifeline import free_port
from teacup.kafka.grants import Grant
from tests.support.one_broker import PATIENT, shared
from tests.support.waiting import wait_until

PASSWORD = "correct horse"
_STORE = "battery staple"
_PROTOCOLS = {"login": "SASL_PLAINTEXT", "secure": "SASL_SSL", "mutual": "SSL"}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_TOKEN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
_KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional-id": ResourceType.TRANSACTIONAL_ID}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


@dataclass(frozen=True)
class Guarded:
    """The broker, as every process of the run reaches it. addresses: by the names above; folder: of certificates."""

    addresses: Mapping[str, str]
    folder: Path

    @cached_property
    def admin(self) -> AdminClient:
        """Of the superuser."""
        return AdminClient(self.plain)

    @property
    def plain(self) -> dict[str, str]:
        """Properties of the superuser."""
        return {"bootstrap.servers": self.addresses["plain"]}

    def user(self, listener: str = "login") -> dict[str, str]:
        """Properties of a new user, who logs in with a password."""
        name = f"user-{uuid.uuid4().hex[:8]}"
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        given = UserScramCredentialUpsertion(name, credential, PASSWORD.encode())
        self.admin.alter_user_scram_credentials([given])[name].result(30)
        wait_until(lambda: self._knows(name))
        return {
            **self._to(listener),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": PASSWORD,
        }

    def _knows(self, name: str) -> bool:
        """Whether the broker has read a new user in its log."""
        with suppress(KafkaException):
            return bool(self.admin.describe_user_scram_credentials([name])[name].result(30))
        return False

    def bearer(self, listener: str = "secure") -> dict[str, str]:
        """Properties of a new user, who logs in with a token."""
        return {
            **self._to(listener),
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal=user-{uuid.uuid4().hex[:8]}",
        }

    def token_in(self, file: Path) -> dict[str, str]:
        """Properties of a new user, who logs in with a token in a file, that `write_token` writes."""
        return {
            **self._to("secure"),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token": f"${{file:{file}}}",
        }

    def certified(self, name: str | None = None) -> dict[str, str]:
        """Properties of a user, a new one without a name, who logs in with a new certificate."""
        name = name or f"user-{uuid.uuid4().hex[:8]}"
        signer = trustme.CA.from_pem((self.folder / "ca.pem").read_bytes(), (self.folder / "ca.key").read_bytes())
        certificate = signer.issue_cert(f"{name}.example", common_name=name)
        files = {
            "ssl.certificate.location": self.folder / f"{name}.pem",
            "ssl.key.location": self.folder / f"{name}.key",
        }
        certificate.cert_chain_pems[0].write_to_path(files["ssl.certificate.location"])
        certificate.private_key_pem.write_to_path(files["ssl.key.location"])
        return {**self._to("mutual"), **{key: str(path) for key, path in files.items()}}

    def _to(self, listener: str) -> dict[str, str]:
        protocol = _PROTOCOLS[listener]
        authority = {"ssl.ca.location": str(self.folder / "ca.pem")} if protocol.endswith("SSL") else {}
        return {"bootstrap.servers": self.addresses[listener], "security.protocol": protocol, **authority}

    def topics(self, *prefixes: str, partitions: int = 1) -> list[str]:
        """New topics."""
        names = [f"{prefix}-{uuid.uuid4().hex[:8]}" for prefix in prefixes]
        for future in self.admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
            future.result(60)
        return names

    def grant(self, user: str, grants: Iterable[Grant]) -> None:
        """Grants it to the user, and waits until the broker has read it in its log."""
        bindings = [
            AclBinding(_KINDS[grant.resource], grant.name, _pattern(grant), f"User:{user}", "*", operation, _ALLOW)
            for grant in grants
            for operation in map(_OPERATIONS.__getitem__, grant.operations)
        ]
        for future in self.admin.create_acls(bindings).values():
            future.result(30)
        anything = AclBindingFilter(
            *(ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None),
            *(AclOperation.ANY, AclPermissionType.ANY),
        )
        wait_until(lambda: set(bindings) <= set(self.admin.describe_acls(anything).result(30)))

    def revoke(self, user: str, grant: Grant, operation: str) -> None:
        """Takes one operation of a grant away, and waits until the broker has read it in its log."""
        taken = AclBindingFilter(
            *(_KINDS[grant.resource], grant.name, _pattern(grant), f"User:{user}", "*"),
            *(_OPERATIONS[operation], _ALLOW),
        )
        self.admin.delete_acls([taken])[taken].result(30)
        wait_until(lambda: not self.admin.describe_acls(taken).result(30))

    def asked(self, user: str) -> Iterator[tuple[bool, str, str, str]]:
        """Yields what the broker decided about a user: whether it allowed it, resource, name, operation."""
        for decided in _DECIDED.finditer((self.folder / "data" / "broker.log").read_text(errors="replace")):
            if decided["user"] == user:
                resource = _LOGGED[decided["resource"]]
                yield decided["answer"] == "Allowed", resource, decided["name"], decided["operation"].replace("_", "")


_ALLOW = AclPermissionType.ALLOW
_LOGGED = {"Topic": "topic", "Group": "group", "TransactionalId": "transactional-id", "Cluster": "cluster"}
_DECIDED = re.compile(
    r"Principal = User:(?P<user>\S+) is (?P<answer>Allowed|Denied) operation = (?P<operation>\S+) from host = \S+ "
    r"on resource = (?P<resource>\w+):\w+:(?P<name>\S+) for"
)


def _pattern(grant: Grant) -> ResourcePatternType:
    return ResourcePatternType.PREFIXED if grant.prefixed else ResourcePatternType.LITERAL


def write_token(file: Path, user: str, lives_s: float) -> None:
    """Replaces the token of a user: not signed, as this broker takes them."""
    now_s = time.time()
    claims = {"sub": user, "iat": now_s, "exp": now_s + lives_s}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)
    ]
    new = file.with_suffix(".new")
    new.write_text(".".join((*parts, "")) + "\n")
    new.replace(file)


def name_of(user: Mapping[str, str]) -> str:
    """The name by which ACLs know a user."""
    certificate = user.get("ssl.certificate.location")
    if certificate is not None:
        return Path(certificate).stem
    return user.get("sasl.username") or user["sasl.oauthbearer.config"].removeprefix("principal=")


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The one broker of the test run that asks for logins and ACLs; each test has users and topics of its own."""
    mine = tmp_path_factory.getbasetemp()
    folder = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    with shared(folder, "guarded", lambda: _started(Path(tempfile.mkdtemp(prefix="guarded-", dir=folder)))) as said:
        known = json.loads(said)
        yield Guarded(known["addresses"], Path(known["folder"]))


@contextmanager
def _started(folder: Path) -> Iterator[str]:
    signer = trustme.CA()
    signer.cert_pem.write_to_path(str(folder / "ca.pem"))
    signer.private_key_pem.write_to_path(str(folder / "ca.key"))
    (folder / "broker.p12").write_bytes(_key_store(signer.issue_cert("127.0.0.1")))
    Broker(folder / "data")  # chooses the ports
    plain, controller = (folder / "data" / "ports").read_text().split()
    ports = {"PLAINTEXT": plain, **{name.upper(): str(free_port()) for name in _PROTOCOLS}}
    with _Witness(folder / "data", _settings(folder, ports, controller)):
        addresses = {"plain" if name == "PLAINTEXT" else name.lower(): f"127.0.0.1:{p}" for name, p in ports.items()}
        yield json.dumps({"addresses": addresses, "folder": str(folder)})


class _Witness(Broker):
    """A broker that also logs what its authorizer allows, not only what it denies."""

    def _java_options(self, jars: Path) -> list[str]:
        more = self.folder / "authorizer.properties"
        more.write_text("logger.authorizer.name=kafka.authorizer.logger\nlogger.authorizer.level=debug\n")
        return [
            f"{option},{more}" if "log4j2.configurationFile" in option else option
            for option in super()._java_options(jars)
        ]


def _settings(folder: Path, ports: Mapping[str, str], controller: str) -> dict[str, str]:
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    protocols |= {name.upper(): protocol for name, protocol in _PROTOCOLS.items()}
    settings = {
        **PATIENT,
        "listeners": _listed({**ports, "CONTROLLER": controller}),
        "advertised.listeners": _listed(ports),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ssl.principal.mapping.rules": r"RULE:^.*?CN=([a-z0-9-]+).*$/$1/",
    }
    for name in ("login", "secure"):
        begin = f"listener.name.{name}"
        settings |= {
            f"{begin}.sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            f"{begin}.scram-sha-512.sasl.jaas.config": _SCRAM,
            f"{begin}.oauthbearer.sasl.jaas.config": f'{_TOKEN} unsecuredLoginStringClaim_sub="broker";',
            f"{begin}.connections.max.reauth.ms": "3600000",  # a connection does not outlive the token of its login
        }
    for name in ("secure", "mutual"):
        begin = f"listener.name.{name}.ssl"
        settings |= {
            f"{begin}.keystore.location": str(folder / "broker.p12"),
            f"{begin}.keystore.password": _STORE,
            f"{begin}.keystore.type": "PKCS12",
            f"{begin}.truststore.location": str(folder / "ca.pem"),
            f"{begin}.truststore.type": "PEM",
            f"{begin}.client.auth": "required" if name == "mutual" else "none",
        }
    return settings


def _listed(ports: Mapping[str, str]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


def _key_store(certificate: trustme.LeafCert) -> bytes:
    """As Java reads one."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    own, *signers = (load_pem_x509_certificate(pem.bytes()) for pem in certificate.cert_chain_pems)
    assert isinstance(key, EllipticCurvePrivateKey)
    return serialize_key_and_certificates(b"broker", key, own, signers, BestAvailableEncryption(_STORE.encode()))
