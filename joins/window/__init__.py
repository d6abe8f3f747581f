"""JoinBolt: the in-memory join, with the window of right records that left may still match.

batch.py         one batch of one bucket
bolt.py          a worker's part (pure)
checkpointed.py  a machine's files copied to the checkpoint, and fetched from there
copied.py        which files were copied, what is still to be copied, what may go (pure)
covering.py      what of the wanted ranges is covered by pieces that may overlap (pure)
match.py         which right records a left record is joined with
restore.py       bring a worker's window to its state before a batch (pure)
slicefiles.py    slices and marks as files, named by what they cover
slices.py        a slice (pure)
stage.py         what a task does with a ticket
window.py        JoinBolt (pure)
"""
