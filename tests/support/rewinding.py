"""`teacup rewind` of a job whose content a test has."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import yaml

from deploy.cli.rewinds import RewindRequest, rewind_of
from tests.support.exitcodes import code_of
from tests.support.movedjob import START_MS


def at(second):
    """The time of left record number `second`, as an option has it."""
    return datetime.fromtimestamp((START_MS + second * 1_000 + 3_000) / 1_000, UTC).isoformat()


def rewind(folder, content, run=None, *, undo=False, dry_run=False, **asked):
    """The command, of a job of this content."""
    file = Path(folder) / "rewound.yaml"
    file.write_text(yaml.safe_dump({"log": "json", **content}))
    asked = {"to": None, "written": None, "into": None, "until": None, **asked}
    request = RewindRequest(undo=undo, dry_run=dry_run, **asked)
    return code_of(rewind_of, file, request, run=run)
