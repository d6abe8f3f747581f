"""What is in a record: its time, its join key, its value as JSON, whatever the format.

avro.py           Avro records as JSON text, whole columns at a time
avro_check.py     which values are Avro records (pure)
avro_schemas.py   what can be known of an Avro schema before a record is read (pure)
ddl.py            schemas as Spark's DDL (pure)
framed.py         values that name their schema, as JSON text (pure)
json_fields.py    fields of JSON values, a whole batch at once, and whether they are JSON (pure)
limits.py         what a topic accepts, and what happens to a record that it would refuse (pure)
protobuf.py       Protobuf messages as JSON text
record.py         what a reader takes from a record: its time, its join key, and what of it is stored (pure)
registry.py       schemas by their ids, from a schema registry
where.py          which records of a topic are read, by fields and headers (pure)
written_times.py  event times as they are written: numbers, and texts in any spelling (pure)
"""
