"""Items by key: API, client, back ends.

api/       the server
backends/  where items are kept: LMDB, Aerospike, Redis; a new back end goes here
client/    the client, for programs
codecs/    items in requests and answers: JSON, Arrow, compressed or not
errors.py  the tree of errors, on both sides of the API (pure)
model.py   what is kept and answered; the Protocol of a back end (pure)

Public: `teacup.storage.client.StorageClient`, `teacup.storage.client.Answered`,
`teacup.storage.client.StorageKeyValue`, `teacup.storage.codecs.json.JsonCodec`,
`teacup.storage.codecs.json.NamespaceBody`, `teacup.storage.model`, `teacup.storage.errors`, and the command `teacup
storage`. The rest is internal.
"""
