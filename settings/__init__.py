"""Configuration files of jobs, collectors and servers: read and validated in one place, every problem at once.

keys.py       the base of the models that say which keys a file may have
values.py     values that several kinds of files have: addresses, properties                      (pure)
yamlfile.py   YAML text to plain values, `${NAME}` replaced from the environment
assignments.py  `key=value` from the command line, in place of a value of the file
document.py   a file, read and validated: what others call
models.py     which keys a model allows at a place
problems.py   what pydantic found, as `where: what, and what is allowed`
errors.py     `SettingsInvalid`, the only error of this package                                   (pure)
"""
