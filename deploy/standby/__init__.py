"""A process that waits beside a running job, warm, and takes over when that one is gone.

    lease.py        when it may take over, and who has the job if two believe they have it (pure)
    lease_file.py   the lease and the mark of a standby, as files of the checkpoint
    turn.py         waits for its turn; keeps the lease while it runs the job

Nothing here keeps rows right: that is Kafka's part. Whoever takes over gives itself the next *term* in the receipts of
the output (`teacup.kafka.delivery.claim`); an earlier process that comes back is fenced, finds the higher term when it
tries again, and ends. The lease only says *when* to take over. It may be wrong: then a job that was well ends with its
own exit code, and no row is lost, written twice, or wrong.

What an earlier process may still write into the checkpoint when it comes back (it was stopped, or cut off, and does not
know yet), and why that is harmless:

    plans (`offsets/N`)     Spark writes a number once. Whoever comes second ends: the earlier process, or the new one,
                            which is started again and carries out the plan that is there, as after any restart. If both
                            passed Spark's look at the same moment (it looks, then renames), the file holds one plan,
                            and the output perhaps rows of the other: the receipts' digests differ, and the next start
                            ends with `BatchDiffers` before it writes anything. The rows of two plans never mix
    commits (`commits/N`)   written only when all summaries of batch N have arrived: its rows are in the output, whoever
                            writes the file, and it holds nothing else
    facts, slices, copies   are named by the digest of their batch or by the ranges that they hold, and replaced whole
    `teacup.lease`          has a number; a lower one that is written late is overwritten and counts as none
    `teacup.run`, positions of the group  are for those who look

Without transactions there is no fence. So a job that writes at least once (`kind: dedup` and feeders do) has a standby
only where a lock proves that the other process has ended: in a folder of this machine.
"""
