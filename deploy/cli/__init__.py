"""The `teacup` command: arguments in, one call, an exit code out.

__main__.py  `python -m deploy.cli`
app.py       the `teacup` command
command.py   the `teacup` command as a process
commands.py  a command that needs an optional part which is not installed says what to install, in one line
dev.py       `teacup dev` (a broker for development)
offsets.py   `teacup offsets` (offsets of a time)
services.py  `teacup delay` (collector and API)
"""
