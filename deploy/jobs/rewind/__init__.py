"""Going back in time: a job reads again from a time on, in a new generation, or a second job does so beside it.

rewind.py     `teacup rewind`, and its undo: a new folder of the checkpoint, one file that names it
in_output.py  which left records have a row in the output
backfill.py   `teacup rewind --into`: a job of its own, from a time to another
"""
