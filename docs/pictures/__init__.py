"""The pictures of the documents, drawn by code: `python -m docs.pictures` writes every SVG file of this folder.

canvas      boxes, arrows, text and dots; refuses text that leaves its box, or overlaps other text or a line
flow        the in-memory join: topics, batch plan, tasks, output, checkpoint
lookup      the lookup join with its feeder, storage API, collector and Data Delay API
batch_plan  two batches over event time: what left waits for, and what expires
deadlock    the join without reports of left's watermark, and with them
receipt     a crash after a commit and one before it
packages    the packages in layers
"""

from __future__ import annotations

from docs.pictures.batch_plan import batch_plan
from docs.pictures.canvas import Canvas
from docs.pictures.deadlock import deadlock
from docs.pictures.flow import flow
from docs.pictures.lookup import lookup
from docs.pictures.packages import packages
from docs.pictures.receipt import receipt


def pictures() -> dict[str, Canvas]:
    """Every picture, by the name of its file."""
    return {f"{draw.__name__}.svg": draw() for draw in (flow, lookup, batch_plan, deadlock, receipt, packages)}
