"""The storage API: bytes by key in namespaces, many items per request, kept by a back end of your choice.

model.py    what is kept and answered; the Protocol of a back end                                  (pure)
errors.py   the tree of errors, on both sides of the API                                           (pure)
wire.py     what server and client exchange about namespaces
client/     the client, for programs
codecs/     items in requests and answers: JSON, Arrow, compressed or not
backends/   where items are kept: LMDB, Aerospike, Redis; a new back end goes here
api/        the server

Public: `storage.client.StorageClient`, `storage.client.Answered`, `storage.client.keyvalue.StorageKeyValue`,
`storage.codecs.jsoncodec.JsonCodec`, `storage.wire.NamespaceBody`, `storage.model`, `storage.errors`, and the command
`teacup storage`. The rest is internal.
"""
