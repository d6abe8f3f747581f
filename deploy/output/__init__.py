"""What is written, and where: rows to the output topic, copies to the side topics.

stage.py         delivery as a stage: items of the join -> what became of each ticket
sink.py          the rows of one ticket: what is in the output already, parts, accounts
routing.py       which topic gets what of a row, and what is refused there
results.py       results as records of the output topic, with our headers                                      (pure)
envelope.py      the default output                                                                             (pure)
selectsql.py     the user's expressions (`output.select`), each tried by itself, so that a row on which one fails
                 harms no other row
sidetopics.py    which side topic gets a copy of which record                                                   (pure)
unwritable.py    rows that cannot be written                                                                    (pure)
deliveries.py    how a ticket's rows are delivered, and the limits of their topics
writing.py       records on their way through a delivery, counted
deduplicated.py  the deduplicator around a writing
accounts.py      what was read, joined, dropped and written must add up                                        (pure)
delivered.py     what became of a bucket's batch                                                                (pure)
"""
