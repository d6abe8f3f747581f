"""Generates the Grafana dashboard and Prometheus alert rules from the metrics: `python -m deploy.watch.manifests`.

It writes `grafana-dashboard.json` and `prometheus-alerts.yaml` to deploy/manifests/. Expressions refer to metrics by
their declarations (`deploy.watch.measures`), so none can name a metric that does not exist. The runbook of an alert is
its row in docs/watch.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy.watch import measures
from deploy.watch.measures import JOB_LABEL, Metric

FOLDER = Path(__file__).parents[1] / "manifests"
DASHBOARD, RULES = FOLDER / "grafana-dashboard.json", FOLDER / "prometheus-alerts.yaml"
RUNBOOK = "docs/watch.md#alerts"
_BY_JOB = f"by ({JOB_LABEL})"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule. It fires once the expression has returned results for as long as `lasting`."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its unit by Grafana's name, and its expressions by legend."""

    title: str
    unit: str
    lines: Mapping[str, str]
    description: str = ""


def _of(metric: Metric, match: str = "", suffix: str = "") -> str:
    """Returns the series of a metric for the selected jobs; `$job` is a variable of the dashboard."""
    chosen = f'{JOB_LABEL}=~"$job"'
    return f"{metric.full_name}{suffix}{{{chosen}{f',{match}' if match else ''}}}"


def _rate(metric: Metric, by: str = "", match: str = "") -> str:
    """Returns the increase of a counter per second."""
    labels = ", ".join(filter(None, [JOB_LABEL, by]))
    return f"sum by ({labels}) (rate({_of(metric, match)}[$__rate_interval]))"


def _share(metric: Metric, part: str, whole: str, over: str) -> str:
    """Returns, by job, the share of `part` in a counter's increase over `whole`."""
    increases = [f"sum {_BY_JOB} (increase({metric.full_name}{{{match}}}{over})) " for match in (part, whole)]
    return f"({increases[0].strip()} / ({increases[1].strip()} > 0))"


def _quantile(quantile: float, metric: Metric) -> str:
    buckets = f"sum by ({JOB_LABEL}, le) (rate({_of(metric, suffix='_bucket')}[$__rate_interval]))"
    return f"histogram_quantile({quantile}, {buckets})"


_LEFT_ROWS = 'outcome=~"matched|unmatched"'
_MATCHED = 'outcome="matched"'

PANELS = (
    Panel(
        "Behind the clock",
        "s",
        {"{{teacup_job}}": _of(measures.BEHIND)},
        "In event time; 0 once all is read. A live join is as far behind as left waits for right",
    ),
    Panel("Records to read", "short", {"{{teacup_job}} {{side}}": _of(measures.LAG)}),
    Panel("Records read", "cps", {"{{teacup_job}} {{side}}": _rate(measures.READ, "side")}),
    Panel("Rows by outcome", "cps", {"{{teacup_job}} {{outcome}} {{reason}}": _rate(measures.ROWS, "outcome, reason")}),
    Panel(
        "Match rate",
        "percentunit",
        {"{{teacup_job}}": f"{_rate(measures.ROWS, match=_MATCHED)} / ({_rate(measures.ROWS, match=_LEFT_ROWS)} > 0)"},
    ),
    Panel(
        "Watermarks: distance from now",
        "s",
        {
            "{{teacup_job}} {{side}}: slowest partition": f"time() - {_of(measures.WATERMARK)}",
            "{{teacup_job}} {{side}}: fastest partition": f"time() - {_of(measures.FASTEST)}",
        },
        "Everything below a watermark is read. If the slowest and the fastest partition part, look at the slowest",
    ),
    Panel(
        "Slowest partition",
        "none",
        {"{{teacup_job}} {{side}}": _of(measures.SLOWEST)},
        "The partition that stands out; -1: all are alike",
    ),
    Panel(
        "Waiting, by what is missing",
        "percentunit",
        {"{{teacup_job}} {{reason}}": _rate(measures.WAITING, "reason")},
        "The share of time in which there was something to read, and it could not be read yet",
    ),
    Panel(
        "Right readable after left's time",
        "s",
        {
            "{{teacup_job}} median": _quantile(0.5, measures.RIGHT_LAG),
            "{{teacup_job}} 99 %": _quantile(0.99, measures.RIGHT_LAG),
        },
        "Of matched rows, a sample: what `after`, `disorder` and `producer_delay` have to wait for",
    ),
    Panel(
        "Duration of a batch",
        "s",
        {
            "{{teacup_job}} median": _quantile(0.5, measures.BATCH_SECONDS),
            "{{teacup_job}} 99 %": _quantile(0.99, measures.BATCH_SECONDS),
        },
    ),
    Panel(
        "Duration of its stages, mean",
        "s",
        {
            "{{teacup_job}} {{stage}}": f"sum by ({JOB_LABEL}, stage) "
            f"(rate({_of(measures.STAGE_SECONDS, suffix='_sum')}[$__rate_interval])) / sum by ({JOB_LABEL}, stage) "
            f"(rate({_of(measures.STAGE_SECONDS, suffix='_count')}[$__rate_interval]))"
        },
        "Of the bucket in which each took longest",
    ),
    Panel("Window: records", "short", {"{{teacup_job}}": _of(measures.WINDOW_RECORDS)}),
    Panel("Window: size", "bytes", {"{{teacup_job}}": _of(measures.WINDOW_BYTES)}),
    Panel("Windows, by where they came from", "cps", {"{{teacup_job}} {{source}}": _rate(measures.RESTORED, "source")}),
    Panel("Late records", "cps", {"{{teacup_job}} {{side}}": _rate(measures.LATE, "side")}),
    Panel("Disorder in the last batch", "s", {"{{teacup_job}} {{side}}": _of(measures.DISORDER)}),
    Panel("Dead letters", "cps", {"{{teacup_job}} {{reason}}": _rate(measures.DEAD, "reason")}),
    Panel("Records written, by topic", "cps", {"{{topic}}": _rate(measures.SENT, "topic")}),
    Panel(
        "Written before: not written again",
        "cps",
        {
            "{{teacup_job}} by receipts": _rate(measures.REPLAYED),
            "{{teacup_job}} dropped as duplicates": _rate(measures.DROPPED),
        },
    ),
    Panel(
        "Tasks tried again, workers replaced, warnings",
        "short",
        {
            "{{teacup_job}} tasks": f"increase({_of(measures.TASK_RETRIES)}[$__rate_interval])",
            "{{teacup_job}} failed attempts": f"increase({_of(measures.FAILED_ATTEMPTS)}[$__rate_interval])",
            "{{teacup_job}} workers": f"increase({_of(measures.WORKER_RESTARTS)}[$__rate_interval])",
            "{{teacup_job}} warnings": f"increase({_of(measures.WARNINGS)}[$__rate_interval])",
        },
    ),
    Panel(
        "State",
        "none",
        {"{{teacup_job}} {{state}}": f"{_of(measures.STATE)} == 1"},
        "In which state each job is; `held` is said below by what holds it",
    ),
    Panel("Held, by what", "bool", {"{{teacup_job}} {{reason}}": _of(measures.HELD)}),
    Panel(
        "Started again",
        "short",
        {"{{teacup_job}}": f"increase({_of(measures.RESTARTS)}[$__rate_interval])"},
    ),
    Panel(
        "Runs, brokers answer",
        "bool",
        {
            "{{teacup_job}} runs": _of(measures.RUNNING),
            "{{teacup_job}} brokers answer": _of(measures.BROKERS),
        },
    ),
    Panel("Executors", "none", {"{{teacup_job}}": _of(measures.EXECUTORS)}),
)

_JOB = f"{{{{ $labels.{JOB_LABEL} }}}}"

ALERTS = (
    Alert(
        "TeacupJobGone",
        f"max {_BY_JOB} ({measures.JOB.full_name} offset 15m) unless max {_BY_JOB} ({measures.JOB.full_name})",
        "5m",
        "critical",
        f"{_JOB} has disappeared within the last quarter of an hour",
    ),
    Alert(
        "TeacupJobFailed",
        f'{measures.LAST_EXIT_CODE.full_name} and on ({JOB_LABEL}) {measures.STATE.full_name}{{state="failed"}} == 1',
        "0m",
        "critical",
        f"{_JOB} ended with exit code {{{{ $value }}}}, and is not started again",
    ),
    Alert(
        "TeacupJobRestarts",
        f"increase({measures.RESTARTS.full_name}[15m]) > 3",
        "0m",
        "critical",
        f"{_JOB} was started again {{{{ $value | humanize }}}} times in a quarter of an hour, and ends each time",
    ),
    Alert(
        "TeacupJobNotRunning",
        f'sum {_BY_JOB} ({measures.STATE.full_name}{{state=~"starting|stopping|restarting"}}) > 0',
        "10m",
        "critical",
        f"{_JOB} does not finish starting or stopping",
    ),
    Alert(
        "TeacupBrokersUnreachable",
        f"{measures.BROKERS.full_name} == 0",
        "5m",
        "critical",
        f"{_JOB} does not reach its brokers",
    ),
    Alert(
        "TeacupNoExecutor",
        f"{measures.NO_EXECUTOR.full_name} > 120",
        "0m",
        "critical",
        f"Spark has had no executor for {_JOB} for {{{{ $value | humanizeDuration }}}}",
    ),
    Alert(
        "TeacupBehind",
        f"{measures.BEHIND.full_name} > 600",
        "15m",
        "warning",
        f"{_JOB} is {{{{ $value | humanizeDuration }}}} behind the clock",
    ),
    Alert(
        "TeacupLagGrows",
        f"sum {_BY_JOB} (deriv({measures.LAG.full_name}[30m])) > 10 "
        f"and sum {_BY_JOB} ({measures.LAG.full_name}) > 100000",
        "30m",
        "warning",
        f"{_JOB} reads less than arrives",
    ),
    Alert(
        "TeacupWaits",
        f'sum by ({JOB_LABEL}, reason) (rate({measures.WAITING.full_name}{{reason!="clock"}}[10m])) > 0.9',
        "10m",
        "warning",
        f"{_JOB} reads nothing: {{{{ $labels.reason }}}}",
    ),
    Alert(
        "TeacupNoBatch",
        f"(time() - {measures.LAST_BATCH.full_name} > 900) "
        f"and on ({JOB_LABEL}) (sum {_BY_JOB} ({measures.LAG.full_name}) > 0)",
        "5m",
        "critical",
        f"{_JOB} has records to read, and has carried out no batch for {{{{ $value | humanizeDuration }}}}",
    ),
    Alert(
        "TeacupLateRecords",
        f"sum by ({JOB_LABEL}, side) (increase({measures.LATE.full_name}[15m])) > "
        f"0.001 * sum by ({JOB_LABEL}, side) (increase({measures.READ.full_name}[15m]))",
        "15m",
        "warning",
        f"{_JOB}: more than one of 1,000 records of {{{{ $labels.side }}}} is late",
    ),
    Alert(
        "TeacupDeadLetters",
        f"sum by ({JOB_LABEL}, reason) (increase({measures.DEAD.full_name}[15m])) > 0",
        "0m",
        "warning",
        f"{_JOB}: records could not be used or written: {{{{ $labels.reason }}}}",
    ),
    Alert(
        "TeacupMatchRateFell",
        f"{_share(measures.ROWS, _MATCHED, _LEFT_ROWS, '[30m]')} < "
        f"0.8 * {_share(measures.ROWS, _MATCHED, _LEFT_ROWS, '[1d] offset 1h')}",
        "15m",
        "warning",
        f"{_JOB} matches {{{{ $value | humanizePercentage }}}} of left, a fifth less than in the day before",
    ),
    Alert(
        "TeacupRightStalled",
        f'sum {_BY_JOB} (increase({measures.ROWS.full_name}{{reason="right_stalled"}}[15m])) > 0',
        "0m",
        "warning",
        f"{_JOB} lets left go without right, after max_wait",
    ),
    Alert(
        "TeacupTasksFail",
        f"sum {_BY_JOB} (increase({measures.FAILED_ATTEMPTS.full_name}[10m])) > 2",
        "0m",
        "warning",
        f"{_JOB}: tasks fail and are tried again; its log and page say why",
    ),
    Alert(
        "TeacupWorkersReplaced",
        f"sum {_BY_JOB} (increase({measures.WORKER_RESTARTS.full_name}[30m])) > 3",
        "0m",
        "warning",
        f"{_JOB}: Python workers keep ending",
    ),
)


def dashboard() -> dict[str, Any]:
    """Returns the dashboard in Grafana's import format."""
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": _SOURCE,
            "query": f"label_values({measures.JOB.full_name}, {JOB_LABEL})",
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]
    return {
        "title": "Teacup jobs",
        "uid": "teacup-jobs",
        "description": "Made by `python -m deploy.watch.manifests`",
        "tags": ["teacup"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "timezone": "utc",
        "templating": {"list": variables},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def rules() -> dict[str, Any]:
    """Returns the alert rules in the format of Prometheus' rule files."""
    return {"groups": [{"name": "teacup", "rules": [_rule(alert) for alert in ALERTS]}]}


def expressions() -> Iterator[str]:
    """Yields every expression of the dashboard, including its variables."""
    for panel in PANELS:
        yield from panel.lines.values()


def texts() -> dict[Path, str]:
    """Returns the contents of both files by path."""
    head = "# Made by `python -m deploy.watch.manifests` from the metrics of jobs. Check: promtool check rules FILE\n"
    return {
        DASHBOARD: json.dumps(dashboard(), indent=2) + "\n",
        RULES: head + yaml.safe_dump(rules(), sort_keys=False, width=1_000),
    }


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDE, _HIGH, _BESIDE = 12, 8, 2


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _BESIDE)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDE, "y": row * _HIGH, "w": _WIDE, "h": _HIGH},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for at, (legend, expression) in enumerate(panel.lines.items())
        ],
    }


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "runbook": RUNBOOK},
    }


def main() -> None:
    """Writes both files."""
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
