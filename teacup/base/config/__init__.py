"""Configuration files: reading, `${NAME}`, validation, durations.

document.py      a file, read and validated: what others call
included.py      files that share values: `include`, and which file a value is from
keys.py          which keys a file may have, and what is wrong with one, as `where: what` (pure)
secret_files.py  secrets in files, `${file:PATH}`, read when they are needed

Public: nothing; users meet the files and their messages.
"""
