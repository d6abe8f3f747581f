"""The join through external storage: a feeder stores right; left waits until right is stored, and is looked up.

feed/           the feeder
unjoined/       right records that no left record has matched, found from the output of a lookup join
batch.py        one batch of one bucket of left: looked up, then matched
key_lookup.py   looks up keys: parallel requests, with retries while the store fails
right_items.py  right records as items of the storage API, and back, whole columns at a time (pure)
source.py       plans batches of left, by how far the Data Delay API says that right is stored
spec.py         what a lookup join is, and what left may rely on (pure)
stage.py        what a task looks up: the left records of tickets, or the rows of any DataFrame
"""
