"""The in-memory join: `JoinBolt` joins left with the window of right records that left may still match.

batch.py         one batch of one bucket
bolt.py          JoinBolt, a worker's part: tickets in, rows out (pure)
checkpointed.py  copies a machine's files to the checkpoint, and fetches them from there
copied.py        which files were copied, what is still to be copied, which copies are no longer needed (pure)
covering.py      which parts of the wanted ranges are covered by pieces that may overlap (pure)
match.py         which right records a left record is joined with (pure)
restore.py       brings a worker's window to its state before a batch (pure)
slicefiles.py    slices and marks as files, named by what they cover
slices.py        a slice (pure)
stage.py         what a task does with a ticket
window.py        the window of one bucket (pure)
"""
