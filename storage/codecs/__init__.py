"""How items are encoded in requests and answers.

codec.py        the Protocol of a media type                                                       (pure)
jsoncodec.py    JSON, for people
arrowcodec.py   Arrow IPC streams, for machines                                                    (pure)
encodings.py    gzip and zstd, within a limit                                                      (pure)
"""
