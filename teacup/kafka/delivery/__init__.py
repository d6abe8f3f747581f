"""Batches of rows in Kafka transactions: a receipt says what was delivered, an old attempt is fenced.

claim.py           what a job does with its output before it begins
delivery.py        delivers a bucket's batch to Kafka, exactly once or at least once
failpoints.py      where a crash test can stop a delivery
fencing.py         fencing of a bucket's earlier producers, and the receipt in the bucket's group
provenance.py      which records a row is made of, and which batch wrote it (pure)
receipt.py         how much of a batch is in the output already (pure)
transactional.py   a bucket's transactional producer, and those that a process keeps open
"""
