"""The `teacup` command: arguments in, one call, an exit code out.

__main__.py   the command as a process: `teacup`, `python -m deploy.cli`
app.py        the commands, with the options of those for jobs
audits.py     `teacup audit`: its options, progress and output
checks.py     `teacup check`: what it prints
commands.py   what commands share: `--set`, one line for an error or a missing extra, logging to standard error
explains.py   `teacup explain`: a question becomes an answer, in lines or JSON
offsets.py    `teacup offsets`: the offsets of a time, and setting a consumer to them
rewinds.py    `teacup rewind`: its options and output
runs.py       `teacup run`, `unjoined`, `move`: job files, their jobs, an exit code
services.py   `teacup delay`, `teacup storage`, `teacup dev`: what runs beside jobs
status.py     `teacup status`: the state of jobs, once or repeatedly
"""
