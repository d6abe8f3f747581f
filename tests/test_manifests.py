"""The manifests: what runs them understands them, and what they run exists."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose
from typer.testing import CliRunner

from deploy.cli.app import app

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "deploy" / "manifests"
KUBERNETES = MANIFESTS / "kubernetes"
KUSTOMIZATION = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
COMPOSE = yaml.safe_load((MANIFESTS / "compose.yaml").read_text())
SECRETS = ("TEACUP_STORAGE_TOKEN", "TEACUP_DELAY_TOKEN", "TEACUP_DELAY_WRITE_TOKEN")
MOUNTED = "/run/secrets"
HEADER = (KUBERNETES / "kustomization.yaml").read_text().partition("apiVersion")[0].replace("\\\n#", " ")
NOT_KUBERNETES = {"ServiceMonitor"}
"""Kinds of operators, whose schemas are not Kubernetes' own."""


def resources() -> Iterator[dict[str, Any]]:
    """Every resource of the base."""
    for name in KUSTOMIZATION["resources"]:
        yield from yaml.safe_load_all((KUBERNETES / name).read_text())


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the pod of every resource that starts some."""
    for resource in resources():
        spec = resource.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield resource["metadata"]["name"], spec["template"]["spec"]


def checked(path: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """`teacup check` accepts the file, with secrets in the environment."""
    for name in SECRETS:
        monkeypatch.setenv(name, "a-token-of-this-test-alone")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0, f"{path}: {done.output}"


def secrets_of(text: str) -> set[str]:
    """The files of secrets that a configuration names."""
    return set(re.findall(rf"(?:file:|tokens_file: )({MOUNTED}/[\w/-]+)", text))


def secrets_in(pod: Mapping[str, Any], container: Mapping[str, Any]) -> set[str]:
    """The files of secrets in a container: each is one that the header of the base creates."""
    created = {
        name: re.findall(r"--from-literal=([\w-]+)=|--from-file=([\w-]+)", line)
        for name, line in re.findall(r"create secret generic (\S+) (.*)", HEADER)
    }
    of = {volume["name"]: volume["secret"] for volume in pod["volumes"] if "secret" in volume}
    found = set()
    for mount in container["volumeMounts"]:
        if mount["name"] in of:
            keys = [literal or file for literal, file in created[of[mount["name"]]["secretName"]]]
            asked = [item["key"] for item in of[mount["name"]].get("items", ())] or keys
            assert set(asked) <= set(keys), mount
            found |= {f"{mount['mountPath']}/{key}" for key in asked}
    return found


def accepted(command: list[str]) -> None:
    """The words of a command before its file are a command of ours."""
    words = command[: next(at for at, word in enumerate(command) if word.startswith("/"))]
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0, command


def test_kubernetes_knows_every_field() -> None:
    """By its own schemas, and nothing beside them."""
    seen = set()
    for resource in resources():
        seen.add(resource["kind"])
        if resource["kind"] not in NOT_KUBERNETES:
            kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)

    assert {"StatefulSet", "Deployment", "CronJob", "Service", "PodDisruptionBudget", "NetworkPolicy"} <= seen
    assert {path.name for path in KUBERNETES.glob("*.yaml")} == {"kustomization.yaml", *KUSTOMIZATION["resources"]}


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    """Otherwise the test above would say nothing."""
    wrong = next(resources())
    wrong["spec"]["portz"] = []

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_pods_run_our_commands_with_little_rights_and_the_files_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No root, nothing writable but volumes, limits; each file is in the map, and each secret in what is mounted."""
    maps = {one["name"]: [KUBERNETES / file for file in one["files"]] for one in KUSTOMIZATION["configMapGenerator"]}
    for name, pod in pods():
        (container,) = pod["containers"]
        mounted = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}

        accepted(container["args"])
        assert container["args"][-1] in {
            f"{mount['mountPath']}/{file.name}"
            for mount in container["volumeMounts"]
            for file in maps.get(mounted.get(mount["name"], ""), ())
        }, name
        file = KUBERNETES / "config" / Path(container["args"][-1]).name
        assert secrets_of(file.read_text()) <= secrets_in(pod, container), name
        assert "env" not in container or not [one for one in container["env"] if "valueFrom" in one], name
        assert pod["securityContext"]["runAsNonRoot"], name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        assert "memory" in container["resources"]["limits"], name
        assert pod["automountServiceAccountToken"] is False, name

    made = re.findall(r"^# +((?:write=|known\(\)|\{ known).*)", HEADER, re.MULTILINE)
    subprocess.run(["bash", "-euc", "\n".join(made)], cwd=tmp_path, check=True)
    contents = {"database": "postgresql://a/b", "tokens": (tmp_path / "tokens").read_text()}
    variables = {"KAFKA_BROKERS": "kafka:9093", "TEACUP_DELAY_URL": "http://a:1", "TEACUP_RUN_DIR": "/run"}
    for files in maps.values():
        for file in files:
            text = file.read_text()
            for secret in secrets_of(text):
                here = tmp_path / secret.removeprefix("/")
                here.parent.mkdir(parents=True, exist_ok=True)
                here.write_text(contents.get(here.name, "a-token-of-this-test-alone"))
            (tmp_path / file.name).write_text(text.replace(MOUNTED, str(tmp_path / MOUNTED.removeprefix("/"))))
            checked(tmp_path / file.name, monkeypatch, **variables)


def test_compose_knows_every_field_and_its_files_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each service runs a command of ours, or an image of somebody else's; files are those of `configs`."""
    PyCompose.from_yaml(yaml.safe_dump(COMPOSE))  # without anchors and merges, which it does not know
    files: Mapping[str, Any] = COMPOSE["configs"]
    for name, service in COMPOSE["services"].items():
        targets = {one["target"]: one["source"] for one in service.get("configs", ())}
        assert set(targets.values()) <= set(files), name
        for needed in service.get("depends_on", ()):
            assert needed in COMPOSE["services"], name
        for volume in service.get("volumes", ()):
            assert volume.startswith(".:") or volume.partition(":")[0] in COMPOSE["volumes"], name
        if service["image"] == "teacup":
            if "command" in service:
                accepted(service["command"])
            (target,) = targets
            path = tmp_path / Path(target).name
            path.write_text(files[targets[target]]["content"].replace("$$", "$"))
            checked(path, monkeypatch)
            assert service["read_only"], name


def test_the_demo_of_compose_makes_records_that_match() -> None:
    """Its script, with files in place of Kafka's producers: keys, a tab, and JSON with the time."""
    script = COMPOSE["services"]["demo"]["entrypoint"][-1].replace("$$", "$")
    here = re.sub(r"(?m)^send\(\) .*$", 'send() { sed "s/^/$1 /"; }', script).replace("sleep 0.1", "[ $n -lt 60 ]", 1)

    done = subprocess.run(["bash", "-c", f"n=0\n{here}\nwait"], capture_output=True, text=True, check=True, timeout=20)

    rows = [line.replace(" ", "\t", 1).split("\t") for line in done.stdout.splitlines()]
    shown = {key for topic, key, _ in rows if topic == "impressions"}
    clicked = [key for topic, key, _ in rows if topic == "clicks"]
    assert len(shown) == 60
    assert 0.5 < sum(key in shown for key in clicked) / len(clicked) < 1
    assert all(set(json.loads(value)) >= {"time"} for _, _, value in rows)


def test_the_image_copies_what_the_wheel_is_built_of() -> None:
    """All packages; the context holds nothing else."""
    text = (MANIFESTS / "Dockerfile").read_text()
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks", "docs", "dev"}
    ignored = (ROOT / ".dockerignore").read_text().split()

    copied = {word for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for word in shlex.split(line)}

    assert packages <= copied
    assert {f"!{name}" for name in copied} <= set(ignored)
    assert all((ROOT / name).exists() for name in copied)
    assert "USER 10001" in text
    assert re.search(r'ENTRYPOINT \["tini", "--", "teacup"\]', text)
