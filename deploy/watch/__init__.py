"""Everything that watches a running job: one source of numbers, several listeners. Independent of the kind of job.

    listener.py   what a job reports, and the protocol of a listener
    life/         the state of a job, and whether it is ready and well: one rule for everything that shows it
    concerns.py   problems that batches report: logged when they begin, grow, and are over (pure)
    timeliness.py  whether records came in time, and which settings would have been enough (pure)
    measures.py   the metrics: names, units, labels, meanings (pure)
    lines.py      a listener: what a job prints
    backlog.py    how much is left to read, and whether the brokers answer: checked every few seconds
    failed_attempts.py  failed task attempts of the batch under way
    hour/         a listener: the last hour, as JSON, with the wait curve
    page/         shows it to people: `/`
    board.py      one port for all jobs of a process: their numbers, probes and pages
    metrics.py    a listener: the numbers for Prometheus; `/metrics`, `/livez`, `/readyz`
    manifests.py  generates the Grafana dashboard and the alert rules from the metrics
    otlp.py       a listener: sends the same numbers to an OpenTelemetry receiver
    server.py     a small HTTP server inside the job
    lineage.py    a listener: OpenLineage events about what is read and written
    supervisor.py  notifies systemd that a job has started and that it is alive
    watched.py    puts them together: what `teacup run` opens around the runner

**To add a listener**, write a class with the methods of `Listener` (or a subclass of `Listener`), and add it in
watched.py. If it shows something, give it `routes()`. No job has to change.

**To add a metric**, declare it in measures.py, and yield a sample in `samples()` of the report that knows its value.
"""
