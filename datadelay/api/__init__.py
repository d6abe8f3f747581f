"""The Data Delay API: stores what collectors submit, and publishes it by the rules of `datadelay.publish`.

migrations/   the history of the tables
page/         the page for people
app.py        the routes, and the metrics
config.py     its configuration
databases.py  the database that a URL names: a SQLite file, or PostgreSQL
schema.py     the tables, and their migration
store.py      what is published: committed when acknowledged, read from memory
"""
