"""The jars of the development broker, or of another pom: found, or fetched once by Maven into a cache folder.

    python -m deploy.broker.jars   fetches those of the broker, and prints their folder

The folder is `broker/<kafka version>-<digest of the pom>` in a cache (`teacup.base.cache`). It is built
under a temporary name and renamed, behind a file lock: it is complete or absent, and only one process fetches it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.errors import JarsNotFetched
from teacup.base.cache import cache_folder, cached
from teacup.spark.errors import MissingTool, NoCache, SparkError
from teacup.spark.java import find_java

_PARTS = Path(__file__).parent
POM = _PARTS / "pom.xml"
LOG_CONFIG = _PARTS / "log4j2.properties"


VERSION = "TEACUP_KAFKA_VERSION"
"""An environment variable: another version of the development broker than the pom's, to try that."""


def kafka_version(pom: Path = POM) -> str:
    """Returns the version in the pom, or the one that is asked for. Raises ValueError if the pom names none."""
    if pom == POM and (asked := os.environ.get(VERSION)):
        return asked
    match = re.search(r"<kafka\.version>([^<]+)<", pom.read_text())
    if match is None:
        raise ValueError(f"{pom} names no kafka.version")
    return match[1]


def fetch_jars(pom: Path = POM) -> Path:
    """Returns the folder with the jars; if it does not exist yet, Maven fetches them."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    name = f"{kafka_version(pom)}-{digest}"
    if (there := cached(f"broker/{name}")) is not None:
        return there
    cache = cache_folder()
    if cache is None:
        raise NoCache("no folder for Kafka's jars can be written to: name one, TEACUP_CACHE=FOLDER")
    root = cache / "broker"
    folder = root / name
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix="fetching-", dir=root) as building:
                jars = Path(building) / "jars"
                _copy_dependencies(pom, jars)
                jars.rename(folder)
    return folder


def _copy_dependencies(pom: Path, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingTool(
            "no Maven found (PATH has no mvn); it fetches Kafka's jars, once. "
            "Debian, Ubuntu: apt-get install maven; macOS: brew install maven."
        )
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-Dkafka.version={kafka_version(pom)}"]
    command += [f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wanted = re.findall(r"<artifactId>(kafka[^<]*)<", pom.read_text())
    if done.returncode != 0 or not all(any(target.glob(f"{name}-*.jar")) for name in wanted):
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise JarsNotFetched(f"{' '.join(command)} failed (exit code {done.returncode}):\n{tail}")


def _main() -> int:
    try:
        find_java()
        sys.stdout.write(f"{fetch_jars()}\n")
    except (JarsNotFetched, SparkError) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
