"""The page about running the services: its commands work, and its units start what there is."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from datadelay.api.config import READ_TOKEN_VARIABLE, DelayServeConfig
from datadelay.client import DelayClient
from deploy.broker.lifeline import free_port
from deploy.cli.app import app
from teacup.base.errors import OF_JOBS
from teacup.http.server.serving import listen
from teacup.storage.backends.opening import open_backend
from teacup.storage.client import StorageClient
from teacup.storage.errors import StorageConfigInvalid
from teacup.storage.model import Item, Namespace, Status
from tests.support.redis_server import RedisProcess, redis_process
from tests.support.storage_process import server_process
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "services.md").read_text(encoding="utf-8")
TLS, CURL, FIRST_TOKEN, NEW_TOKEN = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
(REDIS,) = re.findall(r"```\n(maxmemory-policy.*?)```", PAGE, re.DOTALL)
MANIFESTS = ROOT / "deploy" / "manifests"
UNITS = sorted(MANIFESTS.glob("*.service"))


def bash(script: str, folder: Path) -> str:
    """What a script writes, run in a folder; `teacup` is this one."""
    command = f'teacup() {{ "{sys.executable}" -m deploy.cli "$@"; }}\n{script}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euc", command], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_for_tls_give_a_server_that_clients_trust(tmp_path: Path) -> None:
    """By its name, with the CA that they made; then SIGTERM ends it with 0."""
    bash(TLS, tmp_path)
    assert "does match" in bash("openssl x509 -in server.pem -noout -checkip 127.0.0.1", tmp_path)
    port = free_port()
    tls = {"tls_certificate": str(tmp_path / "server.pem"), "tls_key": str(tmp_path / "server.key")}
    config = {"database": f"sqlite:///{tmp_path / 'delay.db'}", "host": "localhost", "port": port, **tls}
    (tmp_path / "delay.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "deploy.cli", "delay", "serve", str(tmp_path / "delay.yaml")]
    token = "a-token-of-this-test-alone"
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, env={**os.environ, READ_TOKEN_VARIABLE: token}, stderr=log)
    try:
        wait_until(lambda: "listens on" in (tmp_path / "log").read_text())
        url = f"https://localhost:{port}"
        with DelayClient(url, token, retries=20, verify=str(tmp_path / "ca.pem")) as client:
            assert client.list() == ()
        answers = bash(f"TOKEN={token}\n{CURL.replace('HOST:8710', f'localhost:{port}')}", tmp_path)
        assert answers.endswith('"delays":[]}')
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait(60)


def test_a_token_is_replaced_without_an_outage(tmp_path: Path) -> None:
    """Both are valid meanwhile, and a client that writes through both restarts sees no error."""
    old_secret = bash(FIRST_TOKEN.replace("impressions:", "latest:"), tmp_path).strip()
    file, port = tmp_path / "storage-tokens", free_port()
    stop, outcomes = threading.Event(), []

    def write(url: str) -> None:
        with StorageClient(url, old_secret, attempts=1_000, give_up_after_s=60.0) as client:
            while not stop.is_set():
                item = Item(b"%d" % len(outcomes), 1, b"", b"", 4_102_444_800_000)
                outcomes.extend(client.write("latest", [item]))

    def wait_for_more() -> None:
        goal = len(outcomes) + 5
        wait_until(lambda: len(outcomes) >= goal or not thread.is_alive())

    with server_process(tmp_path, port, tokens_file=str(file)) as (server, url):
        thread = threading.Thread(target=write, args=(url,))
        thread.start()
        wait_for_more()
        new_secret = bash(NEW_TOKEN.replace("impressions:", "latest:") + "echo $NEW", tmp_path).split()[-1]
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    with server_process(tmp_path, port, tokens_file=str(file)) as (server, url):
        wait_for_more()
        with StorageClient(url, new_secret) as client:
            (found,) = client.read("latest", [b"0"])
        stop.set()
        thread.join(60)

    assert found.status is Status.OK
    assert {one.status for one in outcomes} == {Status.OK}
    assert not thread.is_alive()


def test_a_redis_with_the_documented_settings_is_accepted(tmp_path: Path) -> None:
    """As included in its own configuration file; without them it is refused."""
    (tmp_path / "teacup.conf").write_text(REDIS)
    server = RedisProcess(tmp_path / "redis")
    server.settings = {"include": str(tmp_path / "teacup.conf")}
    try:
        server.start()
        open_backend(server.url(), [Namespace("a")]).close()
    finally:
        server.stop()
    with redis_process(tmp_path / "other", appendonly="no") as other, pytest.raises(StorageConfigInvalid):
        open_backend(other.url(), [Namespace("a")])


def sections(unit: Path) -> configparser.ConfigParser:
    """A unit, as far as the parser of INI files reads it; systemd's own reads it in the test below."""
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(unit.read_text())
    return parsed


def test_the_units_start_commands_that_exist_and_never_again_after_a_wrong_configuration() -> None:
    """Their files are among the examples, and the page names them."""
    for unit in UNITS:
        service = sections(unit)["Service"]
        program, *words, file = service["ExecStart"].split()

        assert Path(program).name == "teacup", unit.name
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0, unit.name
        assert "%i" in file or (ROOT / "deploy" / "examples" / Path(file).name).exists(), unit.name
        assert unit.name in PAGE
        if service.get("Type") != "oneshot" and "%i" not in file:
            assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2"), unit.name
    assert UNITS


def test_the_unit_of_jobs_starts_again_what_a_new_start_may_help() -> None:
    """As the page for operators says of each exit code; what somebody has to correct is not tried again."""
    unit = sections(MANIFESTS / "teacup@.service")
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").split("## Exit codes")[1]
    rows = re.findall(r"^\| (\d+) \| (no|yes)", page, re.MULTILINE)
    kept_down = {int(code) for code in unit["Service"]["RestartPreventExitStatus"].split()}

    assert kept_down == {int(code) for code, again in rows if again == "no"} - {0}
    assert kept_down | {0, 1, 4, 13} == {code.value for code in OF_JOBS}
    assert unit["Service"]["Type"] == "notify"
    assert unit["Service"]["KillMode"] == "mixed"


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """With a program that exists, as systemd looks for it. Where systemd is not installed, their names are checked."""
    units = [*UNITS, *MANIFESTS.glob("*.timer")]
    if shutil.which("systemd-analyze") is None:
        known = {"Unit", "Service", "Timer", "Install"}
        assert [unit.name for unit in units if not set(sections(unit).sections()) <= known] == []
        return
    for unit in units:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/teacup/bin/teacup", "/bin/true"))

    command = ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert [line for line in done.stderr.splitlines() if "teacup" in line] == []
    assert done.returncode == 0, done.stderr


def checked(file: Path, text: str, command: str = "check") -> tuple[int, str]:
    """The exit code and the output of a command that is given a file with this text."""
    file.write_text(text)
    done = CliRunner().invoke(app, [command, str(file)])
    return done.exit_code, done.output


WRONG_FILES = {
    "store: lmdb:///x\nport: 99999\nanonymus: 1\n": ["port: 99999", "namespaces: is missing", "anonymous?"],
    "database: sqlite:///x\ntokens_file: /no\ntls_key: /no\n": ["tokens_file: /no", "tls_key: /no is given"],
    "consumers: []\n": ["api: is missing", "lock_file: is missing"],
    "store: x:///y\nprot: 1\nnamespaces: [{name: a}, {name: a}]\ntokens_file: /no\ntls_key: /no\nmax_held_bytes: 1\n": [
        *("prot: unknown", "['a'] occur", "tokens_file: /no", "tls_key: /no", "max_held_bytes: 1 ", "back ends are"),
    ],
    "database: sqlite:///x\nprot: 1\ntokens_file: ${NOT_SET}\n": [": 2 errors"],
    "api: {url: http://x}\nlock_file: l\nconsumers:\n"
    "- &c {consumer: c, positions: {from: group, group: g}, topics: [{topic: t}, {topic: t}]}\n- *c\n": [
        *("consumers.0.kafka: of", "consumers.0.topics.1: consumer 'c' has", "consumers.1.topics.0: consumer"),
    ],
}
"""Files of services, and what `teacup check` says about each."""


def test_check_reports_everything_that_is_wrong_with_the_file_of_a_service(tmp_path: Path) -> None:
    """Its tokens and certificates included."""
    for text, said in WRONG_FILES.items():
        code, output = checked(tmp_path / "service.yaml", text)

        assert code == 2, output
        assert [words for words in said if words not in output] == []
    code, output = checked(tmp_path / "service.yaml", "store: lmdb:///x\nnamespaces: [{name: a}]\nanonymous: [read]\n")
    assert (code, "is valid, for the storage API" in output) == (0, True), output


def test_what_is_open_to_the_network_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what only this machine can reach, needs a token, or is encrypted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(READ_TOKEN_VARIABLE, "a-token-of-this-test-alone")
    bash(TLS, tmp_path)
    expected = {
        "anonymous: [read, write]\nhost: 0.0.0.0": True,
        "anonymous: [read]\nhost: '::'": True,
        "anonymous: [read]\nhost: storage.example": True,
        "anonymous: [read]": False,
        "anonymous: [read]\nhost: localhost": False,
        "anonymous: [read]\nhost: '::1'": False,
        "host: 0.0.0.0": False,
        "anonymous: [read]\nhost: 0.0.0.0\ntls_certificate: server.pem\ntls_key: server.key": False,
    }

    found = {one: checked(tmp_path / "service.yaml", f"database: sqlite:///x\n{one}\n") for one in expected}

    assert {code for code, _ in found.values()} == {0}
    assert {one: "warning: anonymous: read" in output for one, (_, output) in found.items()} == expected


def test_the_warning_of_what_is_open_is_also_logged_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """With the keys that change it."""
    opened = {"database": "sqlite:///x", "anonymous": {"write"}, "port": 0}

    listen(DelayServeConfig(**opened)).close()
    listen(DelayServeConfig(host="0.0.0.0", **opened)).close()

    (line,) = caplog.messages
    assert "anonymous: write on 0.0.0.0 without TLS" in line
    assert all(key in line for key in ("tokens_file", "tls_certificate", "host: 127.0.0.1"))


WRONG_URLS = {
    "store: redis://localhost/0?sync=maybe&timeout=5": "unknown option 'timeout': did you mean timeout_s?",
    "store: redis://localhost/0?sync=maybe": "sync is yes or no, not 'maybe'",
    "store: rediss://localhost/0?ca_bundle=/no": "ca_bundle '/no' is not a file",
    "store: rediss//localhost:16390/0": "back ends are lmdb:, aerospike:, redis:, rediss:",
    "store: postgres://localhost/x": "back ends are lmdb:",
    "store: lmdb://var/lib/x": "name a folder with three slashes",
    "store: lmdb:///var/lib/x?map_size=32GB": "map_size '32GB' is not understood",
    "database: postgresql://h/d?conect_timeout=3": "unknown option 'conect_timeout': did you mean connect_tim",
    "database: postgresql://h/d?quite=other": "unknown option 'quite': name only parameters of libpq",
}


def test_check_looks_at_the_url_of_the_store_and_of_the_database(tmp_path: Path) -> None:
    """As `serve` would, without connecting."""
    for line, said in WRONG_URLS.items():
        namespaces = "namespaces: [{name: a}]\n" if line.startswith("store") else ""
        code, output = checked(tmp_path / "service.yaml", f"{line}\n{namespaces}anonymous: [read]\n")

        assert (code, said in output) == (2, True), f"{line}: {output}"


def test_check_opens_no_store(tmp_path: Path) -> None:
    """Neither a connection nor a folder."""
    for url in (
        "redis://localhost:1/0",
        "aerospike://localhost:1/n",
        "lmdb:///nowhere/of/ours",
        "rediss://localhost:1",
    ):
        text = f"store: {url}\nnamespaces: [{{name: a}}]\nanonymous: [read]\n"
        code, output = checked(tmp_path / "service.yaml", text)

        assert code == 0, output
    assert not Path("/nowhere").exists()


MISSPELLED = {
    "stor: lmdb:///x": "stor: unknown key; did you mean store?",
    "databse: sqlite:////x": "databse: unknown key; did you mean database?",
    "consumer: []": "consumer: unknown key; did you mean consumers?",
    "knd: feeder": "knd: unknown key; did you mean kind?",
    "storage: {url: 'http://x'}": "kind: is missing; give window-join or",
}


def test_the_misspelled_key_that_says_what_a_file_is_for_is_named(tmp_path: Path) -> None:
    """Keys of jobs are none, however similar they are."""
    for line, said in MISSPELLED.items():
        for command in ("check", "run"):
            code, output = checked(tmp_path / "some.yaml", f"name: x\nport: 1\n{line}\n", command)

            assert (code, said in output) == (2, True), f"{command} {line}: {output}"


def test_to_run_the_file_of_a_service_another_command_is_named() -> None:
    """One that exists."""
    commands = {"storage": "teacup storage serve", "delay": "teacup delay serve", "collector": "teacup delay collect"}
    for file, command in commands.items():
        done = CliRunner().invoke(app, ["run", str(ROOT / "deploy" / "examples" / f"{file}.yaml")])

        assert (done.exit_code, f", which `{command}` takes" in done.output) == (2, True), done.output
        assert CliRunner().invoke(app, [*command.split()[1:], "--help"]).exit_code == 0


def test_check_of_a_service_takes_no_options_of_jobs(tmp_path: Path) -> None:
    """They would be ignored."""
    (tmp_path / "service.yaml").write_text("store: lmdb:///x\nnamespaces: [{name: a}]\nanonymous: [read]\n")

    for options in (["--connect"], ["--set", "port=1"]):
        assert CliRunner().invoke(app, ["check", str(tmp_path / "service.yaml"), *options]).exit_code == 2


def test_check_names_a_file_that_is_not_there() -> None:
    """Whatever it would have been."""
    done = CliRunner().invoke(app, ["check", "/nope.yaml"])

    assert (done.exit_code, "/nope.yaml: 1 error\n  cannot be read: No such file" in done.output) == (2, True)
