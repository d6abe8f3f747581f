"""Batches of rows in Kafka transactions: a receipt says what was delivered, an old attempt is fenced.

claim.py      what a job does with its output before it begins
delivery.py   delivers a bucket's batch to Kafka, exactly once or at least once
failpoint.py  points in the delivery where a test can stop a process in order to kill it there; they cost nothing
              otherwise
fencing.py    a bucket's transactional producer
receipt.py    how much of a batch is in the output already (pure)
"""
