"""The join through external storage: a feeder stores right; left waits until right is stored, then looks it up.

feed/           the feeder
unjoined/       finds right records that no left record has matched, from the output of a lookup join
batch.py        candidates from a store: looks up chunks of left
gate.py         what left may rely on, by a report of the Data Delay API (pure)
key_lookup.py   looks up keys: parallel requests, with retries while the store fails
right_items.py  converts right records to items of the storage API and back, whole columns at a time (pure)
source.py       plans batches of left, as far as the Data Delay API says that right is stored
stage.py        the tasks: look up the left records of tickets, or the rows of any DataFrame
"""
