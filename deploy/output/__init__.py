"""What is written, and where: rows to the output topic, copies to the side topics.

copies.py     copies of records for side topics (pure)
envelope.py   the default output (pure)
outgoing.py   records on their way to one topic, and which of them the topic would refuse (pure)
selectsql.py  the user's expressions (`output.select`), each tried by itself, so that a row on which one fails harms
              no other row
sink.py       delivery
"""
