"""The server of the storage API.

app.py      the routes
batches.py  carries out one batch on a back end; threads take turns
config.py   its configuration
content.py  codec and encoding of a request and of its answer
metrics.py  Prometheus metrics
serve.py    runs it: one worker, or several that share its socket
"""
