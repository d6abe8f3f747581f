"""The server of the storage API.

serve.py     runs it: one worker, or several that share its socket
app.py       the routes
config.py    its configuration
turns.py     threads, by turns of the callers
batches.py   carries out one batch on a back end
content.py   codec and encoding of a request and of its answer
bodies.py    what the OpenAPI description says about bodies
metrics.py   Prometheus metrics
"""
