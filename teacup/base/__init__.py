"""What has nothing to do with Kafka, Spark or HTTP: clocks, errors, logs, fields, configuration files.

config/     configuration files: reading, `${NAME}`, validation, durations
clock.py    a wall clock that is trusted only while something else agrees with it
errors.py   how a command ends (pure)
fields.py   the fields of a description, coerced or refused by their declared types (pure)
files.py    JSON with a checksum, for small files that a job reads again later (pure)
imports.py  what a package exports, imported on first use
logs.py     log lines, in the driver and in the processes that Spark starts
now.py      the two clocks of this machine, in milliseconds
process.py  calls in threads of their own, waited for a bounded time: librdkafka does not always have one
times.py    times and their bounds, and how people see one (pure)
"""
