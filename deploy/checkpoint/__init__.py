"""A job's checkpoint: who may write in it, what it says, and our files beside Spark's.

file.py             a checkpoint on any file system: access, and a small file of ours in it
join_checkpoint.py  the batches of a join, and three files: generation, name, moved
lease.py            when a standby may take over, and who has the job if two believe they have it (pure)
lease_file.py       the lease and the mark of a standby, as files
lock.py             one process per checkpoint
past.py             what a checkpoint has done, and where a time begins in the topics of its join
place.py            in which folder of its checkpoint a job goes on, once it was rewound
run_record.py       who ran on it last, how that ended, and the newest warnings
verdicts.py         the state of `teacup unjoined`

Spark's own files are read in `teacup.spark.checkpoint`.
"""
