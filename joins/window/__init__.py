"""The in-memory join: `JoinBolt` joins left with the window of right records that left may still match.

shuffle/         the shuffled path of the in-memory join: any two topics
backup.py        copies a machine's files to the checkpoint, and fetches them from there (the edge to fsspec)
bolt.py          JoinBolt, a worker's part: tickets in, rows out (pure)
covering.py      which pieces cover the wanted ranges, and which were copied to the checkpoint (pure)
match.py         which right records a left record is joined with (pure)
restore.py       brings a worker's window to its state before a batch (pure)
slice_files.py   slices and marks as files, named by what they cover
slices.py        a slice: an immutable, indexed piece of the window (pure)
stage.py         what the tasks do, on either path
window.py        the window of one bucket (pure)
"""
