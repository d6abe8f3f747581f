"""Whoever watches a running job: one source of numbers, several listeners. Knows no kind of job.

    listener.py   what a job tells, and the protocol of a listener
    life/         how a job is, in a word, and whether it is ready and well: one rule for all who say it
    concerns.py   what batches complain of: said when it begins, grows, and is over (pure)
    timeliness.py  whether records came in time; which settings had been enough (pure)
    measures.py   the metrics: names, units, labels, meanings (pure)
    lines.py      a listener: what a job prints
    backlog.py    how much is left to read, and whether brokers answer: looked up every few seconds
    failed_attempts.py  attempts at tasks that failed while their batch is under way
    hour/         a listener: the last hour, as JSON, with the wait curve
    page/         shows it to people: `/`
    board.py      one port for all jobs of a process: their numbers, whether they live, their pages
    metrics.py    a listener: the numbers for Prometheus; `/metrics`, `/livez`, `/readyz`
    manifests.py  the Grafana dashboard and the alert rules, made from the metrics
    otlp.py       a listener: the same numbers, sent to an OpenTelemetry receiver
    server.py     a small HTTP server inside the job
    lineage.py    a listener: OpenLineage events of what is read and written
    supervisor.py  what systemd learns of a job: that it runs, and that it still does
    watched.py    puts them together: what `teacup run` opens around the runner

**Add a listener:** a class with the methods of `Listener` (or a subclass of `Quiet`), and a line in watched.py. If it
shows something, it has `routes()`. It touches no job.

**Add a metric:** a line in measures.py, and a sample in `samples()` of the report that knows it.
"""
