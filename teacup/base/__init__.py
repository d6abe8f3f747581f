"""What has nothing to do with Kafka, Spark or HTTP: clocks, errors, logs, fields, configuration files.

config/         configuration files: reading, `${NAME}`, validation, durations
cache.py        where caches go, for a user with or without a home
clock.py        a wall clock that is trusted only while something else agrees with it (pure)
disks.py        the disk of a folder: whether it takes what is written, and how much more
errors.py       how a command ends, and what is raised for a configuration that cannot work (pure)
fields.py       the fields of a description, coerced or refused by their types; secret values; plain values (pure)
files.py        small files that a job reads again later: JSON with a checksum, durable after a power failure
logs.py         log lines, in the driver and in the processes that Spark starts; each at most once a minute
now.py          the two clocks of this machine in milliseconds, and what is due once in a period
process.py      what a process must be careful with: calls that may hang, clients and forks, imports, garbage
scratch.py      temporary folders that a killed process does not leave behind for ever
stage_times.py  how long the stages of a piece of work take when they call each other (pure)
times.py        times and durations in milliseconds: their bounds, and how people write them (pure)
version.py      which version of Teacup runs
"""
