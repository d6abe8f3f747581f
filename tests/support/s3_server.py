"""An S3 server on this machine: moto's, as a process of its own, with one bucket and one user who may use it."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.broker.lifeline import free_port
from tests.support.leftovers import kill_session, kill_session_with_us
from tests.support.waiting import wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
BUCKET = "streams"
_SET_UP = 4  # requests that need no credentials: those that make user, rights, key and bucket
_ALL = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'


@dataclass(frozen=True)
class S3:
    """Where it listens, and who may use it."""

    url: str
    key: str
    secret: str

    def environment(self, **changes: str) -> dict[str, str]:
        """What a process needs that uses it."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            **changes,
        }


@contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """The server; folder: for its log."""
    import boto3

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "s3.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            env={"INITIAL_NO_AUTH_ACTION_COUNT": str(_SET_UP), "PATH": "/usr/bin:/bin"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    kill_session_with_us(server.pid)
    try:
        wait_until(lambda: _listens(url))
        at = {"endpoint_url": url, "region_name": "us-east-1"}
        nobody = {**at, "aws_access_key_id": "nobody", "aws_secret_access_key": "nobody"}
        users = boto3.client("iam", **nobody)
        users.create_user(UserName="teacup")
        users.put_user_policy(UserName="teacup", PolicyName="all", PolicyDocument=_ALL)
        key = users.create_access_key(UserName="teacup")["AccessKey"]
        boto3.client("s3", **nobody).create_bucket(Bucket=BUCKET)
        yield S3(url, key["AccessKeyId"], key["SecretAccessKey"])
    finally:
        kill_session(server.pid)
        server.wait()


def _listens(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=30).close()
    except urllib.error.URLError:
        return False
    return True
