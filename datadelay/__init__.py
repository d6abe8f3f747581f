"""How far has a consumer come in event time? The Data Delay: its collector, its API and client, offsets of a time.

api/          the server: stores what is published, and shows it
collector/    one run of the collector, made for cron
positions/    where consumers keep their positions: Kafka group, Spark checkpoint, ZooKeeper
client.py     the API for programs
errors.py     the tree of errors (pure)
model.py      what a collector submits, and what a reader gets (pure)
offsets.py    the offset of a time in each partition, whether it can be trusted, and how to set a consumer to it
publish.py    what is published of a consumer's submissions (pure)
watermark.py  the rules: watermark of a partition, watermark of a topic (pure)
wire.py       the JSON between server and client

Public: `datadelay.client.DelayClient`, `datadelay.client.HistoryPage`, `datadelay.model`, `datadelay.errors`, and the
commands `teacup delay` and `teacup offsets`. The rest is internal.
"""
