"""What the driver and its tasks share about a batch: the rules, the state, the tickets, the results.

facts.py       what a batch found out (pure)
handover.py    a new checkpoint that goes on after another one, as a changed join (pure)
rules.py       how far right is complete, when a left record may go, what expires (pure)
state.py       the batch plan as data (pure)
stragglers.py  which partitions hold a topic back, if they are not all alike (pure)
ticket.py      a bucket's share of a batch plan, as it travels from the driver to the task that carries it out (pure)
"""
