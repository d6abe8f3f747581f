"""The `teacup` command: arguments in, one call, an exit code out.

__main__.py  the command as a process: `teacup`, `python -m deploy.cli`
app.py       the commands for jobs: `run`, `check`, `move`, `rewind`, `unjoined`, `audit`, `schema`
audits.py    `teacup audit`: what was asked for, progress, and what is printed
commands.py  what commands share: `--set`, a missing extra in one line, and what is logged to standard error
offsets.py   `teacup offsets`: the offsets of a time, and setting a consumer to them
rewinds.py   `teacup rewind`: what was asked for, and what is printed of what it does
services.py  `teacup delay`, `teacup storage`, `teacup dev`: what runs beside jobs
many_jobs.py   `teacup run` of several job files, or of a folder
status.py    `teacup status`: how jobs are, once or again and again
"""
