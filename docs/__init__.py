"""The documents, and what writes the parts of them that come from the code.

pictures/        the pictures, as SVG
blocks.py        blocks of commands and their output in a page
commands.py      the page of commands
keytables.py     the tables of keys in the reference
metrics.py       the table of metrics in the reference
recordtables.py  the tables of headers and reasons in the reference
"""
