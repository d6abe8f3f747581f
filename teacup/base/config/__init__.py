"""Configuration files: reading, `${NAME}`, validation, durations.

document.py  a file, read and validated: what others call
keys.py      which keys a file may have, and what is wrong with one, as `where: what` (pure)

Public: nothing; users meet the files and their messages.
"""
