"""Configuration files of jobs, collectors and servers: read and validated in one place, every problem at once.

document.py      a file, read and validated: what others call
yamlfile.py      YAML text to plain values, `${NAME}` replaced from the environment
assignments.py   `key=value` from the command line, in place of a value of the file
keys.py          the base of the models that say which keys a file may have           (pure)
values.py        values that several kinds of files have: addresses, properties      (pure)
durations.py     durations as people write them: `1m 30s`                         (pure)
certificates.py  the file of certificates that a server's must be signed by
models.py        which keys a model allows at a place
problems.py      what pydantic found, as `where: what, and what is allowed`
errors.py        `SettingsInvalid`, the only error of this package                   (pure)

Public: nothing; users meet the files and their messages.
"""
