"""This machine's Java, and the folder where files are kept that any job may use again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deploy.errors import MissingTool

MINIMUM_JAVA = 17


_HOW = (
    f"Teacup needs Java {MINIMUM_JAVA} or newer. Debian, Ubuntu: "
    "apt-get install openjdk-17-jre-headless; macOS: "
    "brew install openjdk@17; or set JAVA_HOME to the one you have."
)


def java_of(env: Mapping[str, str] = os.environ) -> str:
    """Returns the `java` of `JAVA_HOME`, else of the `PATH`, of any version; raises `MissingTool` if there is none."""
    home = env.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=env.get("PATH"))
    if java is None or not Path(java).exists():
        raise MissingTool(f"no Java found ({f'JAVA_HOME={home}' if home else 'PATH has no java'}). {_HOW}")
    return java


def find_java(env: Mapping[str, str] = os.environ) -> str:
    """Finds Java by `java_of`, and asks it for its version; raises `MissingTool` unless that is 17 or newer."""
    java = java_of(env)
    # In a session of its own: a signal to the job's group would otherwise end it, and look like a broken Java.
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, start_new_session=True)
    version = re.search(r'version "(\d+)', printed.stderr + printed.stdout)
    if printed.returncode != 0 or version is None:
        raise MissingTool(f"{java} -version prints no version: {printed.stderr.strip()!r}. {_HOW}")
    if int(version[1]) < MINIMUM_JAVA:
        raise MissingTool(f"{java} is Java {version[1]}. {_HOW}")
    return java


def check_java() -> None:
    """Checks what a Spark session needs of this machine, before anything is claimed. Raises `MissingTool`.

    Under `spark-submit` a JVM runs already.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        find_java()


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """`TEACUP_CACHE`, else `~/.cache/teacup`."""
    named = env.get("TEACUP_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "teacup"
