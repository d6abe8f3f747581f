"""How far has a consumer come in event time? The Data Delay: its collector, its API and client, offsets of a time.

progress.py    the rules: progress of a partition, frontier of a topic                             (pure)
model.py       what a collector submits, and what a reader gets                                    (pure)
publish.py     what is published of a consumer's progress                                          (pure)
wire.py        the JSON between server and client
client.py      the API for programs
errors.py      the tree of errors                                                                  (pure)
collector/     one run of the collector, made for cron
positions/     where consumers keep their positions: Kafka group, Spark checkpoint, ZooKeeper
offsets/       the offsets of a time, and setting positions to them
api/           the server: stores what is published, and shows it

Public: `datadelay.client.DelayClient`, `datadelay.client.HistoryPage`, `datadelay.model`, `datadelay.errors`, and the
commands `teacup delay` and `teacup offsets`. The rest is internal.
"""
