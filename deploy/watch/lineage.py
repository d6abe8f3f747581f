"""A listener that reports what a job reads and writes as OpenLineage events, for services that draw the graph of jobs.

    START      the run begins, with its topics
    RUNNING    every `every`, with what it has read and written so far
    COMPLETE   the run ended with exit code 0: done, or stopped by a signal
    ABORT      the run was stopped before all was read
    FAIL       the run ended in any other way, with the exit code and its meaning

Topics are datasets `kafka://HOST:PORT` / TOPIC, following OpenLineage's naming. `{namespace}.{job}` is one job across
all its runs, and each start is a run. The known fields of a topic are its schema. Counts cover the run: records read by
topic, and rows written to the output.

Events are sent in a separate thread, so a service that does not answer costs the job nothing. A failure is logged once,
and the next event tries again. At the end the job waits for the last event, but not for long.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, Protocol

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.uuid import generate_new_uuid

from deploy.jobfile.job import LineageTo
from deploy.watch import measures
from deploy.watch.listener import JobDescription, Listener, Report
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.base.times import iso

log = logging.getLogger("teacup.deploy.watch.lineage")

PRODUCER = "https://pypi.org/project/teacup-joins"
API_KEY = "OPENLINEAGE_API_KEY"
ENDED_WITHIN_S = 5.0
OUTPUT = "output"


class Client(Protocol):
    """The part of the OpenLineage client that is used."""

    def emit(self, event: Any) -> None:
        """Sends an event. Raises its transport's errors."""


def _client(url: str | None) -> Client:
    """Returns an OpenLineage client for this service or, without a URL, for the one in its own configuration."""
    if url is None:
        return OpenLineageClient()
    token = os.environ.get(API_KEY)
    auth = {"auth": {"type": "api_key", "apiKey": token}} if token else {}
    return OpenLineageClient(config={"transport": {"type": "http", "url": url, **auth}})


class Lineage(Listener):
    """Reports one run."""

    watches = False

    def __init__(self, to: LineageTo, client: Client | None = None) -> None:
        self._to = to
        self._client: Client = client or _client(to.url)
        self._run = str(generate_new_uuid())
        self._description: JobDescription | None = None
        self._read: Counter[str] = Counter()
        self._rows = 0
        self._reported_s = time.monotonic()
        self._events: SimpleQueue[RunEvent | None] = SimpleQueue()
        self._failed = False
        self._sender = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._sender.start()

    def opening(self, description: JobDescription) -> None:
        self._description, self._reported_s = description, time.monotonic()
        self._tell(RunState.START)

    def batch(self, report: Report) -> None:
        for measured in report.samples():
            labels = measured.by_name
            if measured.metric == measures.READ:
                self._read[labels["side"]] += int(measured.value)
            elif measured.metric == measures.SENT:
                is_output = self._description is not None and self._description.writes.get(labels["topic"]) == OUTPUT
                self._rows += int(measured.value) if is_output else 0
            elif measured.metric == measures.ROWS:
                self._rows += int(measured.value) if labels["outcome"] == "written" else 0
        if time.monotonic() - self._reported_s >= self._to.every_ms / 1000:
            self._reported_s = time.monotonic()
            self._tell(RunState.RUNNING)

    def ended(self, code: ExitCode) -> None:
        if self._description is None:  # it never began, because another process has the checkpoint
            return
        if code is ExitCode.DONE:
            self._tell(RunState.COMPLETE)
        elif code is ExitCode.STOPPED:
            self._tell(RunState.ABORT)
        else:
            error = error_message_run.ErrorMessageRunFacet(f"exit code {code.value}: {code.meaning}", "python")
            self._tell(RunState.FAIL, {"errorMessage": error})

    def close(self) -> None:
        """Waits for the last event, but not for long."""
        self._events.put(None)
        self._sender.join(ENDED_WITHIN_S)

    def _tell(self, state: RunState, facets: Mapping[str, Any] | None = None) -> None:
        assert self._description is not None
        description = self._description
        engine = processing_engine_run.ProcessingEngineRunFacet(version=description.version, name="teacup")
        kind = job_type_job.JobTypeJobFacet("STREAMING", "TEACUP", description.kind.upper().replace("-", "_"))
        self._events.put(
            RunEvent(
                eventType=state,
                eventTime=iso(wall_ms()),
                producer=PRODUCER,
                run=Run(self._run, {"processing_engine": engine, **(facets or {})}),
                job=Job(self._to.namespace, description.name, {"jobType": kind}),
                inputs=[self._input(topic, side) for topic, side in description.sides.items()],
                outputs=[self._output(topic, role) for topic, role in description.writes.items()],
            )
        )

    def _input(self, topic: str, side: str) -> InputDataset:
        counts = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=self._read[side])
        return InputDataset(self._cluster, topic, {"inputStatistics": counts}, facets=self._schema(topic))

    def _output(self, topic: str, role: str) -> OutputDataset:
        counts: dict[str, Any] = {}
        if role == OUTPUT:
            facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=self._rows)
            counts["outputStatistics"] = facet
        return OutputDataset(self._cluster, topic, counts, facets=self._schema(topic))

    def _schema(self, topic: str) -> dict[str, Any]:
        assert self._description is not None
        fields = self._description.fields.get(topic)
        if not fields:
            return {}
        named = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in fields.items()]
        return {"schema": schema_dataset.SchemaDatasetFacet(named)}

    @property
    def _cluster(self) -> str:
        assert self._description is not None
        return f"kafka://{self._description.brokers.split(',')[0].strip()}"

    def _send_all(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:  # noqa: BLE001 - each transport raises errors of its own
                if not self._failed:
                    log.warning("lineage is not reported: %s: %s", type(error).__name__, error)
                self._failed = True
            else:
                self._failed = False
