"""Configuration files: reading, `${NAME}`, validation, durations.

document.py  a file, read and validated: what others call
keys.py      the base of the models that say which keys a file may have (pure)
problems.py  what pydantic found, as `where: what, and what is allowed`

Public: nothing; users meet the files and their messages.
"""
