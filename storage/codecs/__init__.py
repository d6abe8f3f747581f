"""How items are encoded in requests and answers."""
