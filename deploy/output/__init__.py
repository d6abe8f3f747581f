"""What is written, and where: rows to the output topic, copies to the side topics.

accounts.py     what was read, joined, dropped and written must add up (pure)
deliveries.py   how a ticket's rows are delivered, and the limits of their topics
routing.py      which topic gets what of a row, and what is refused there
select.py       the user's expressions (`output.select`), each tried by itself, so that a row on which one fails harms
                no other row
side_topics.py  which side topic gets a copy of which record (pure)
stage.py        delivery as a stage: items of the join -> what became of each ticket
"""
