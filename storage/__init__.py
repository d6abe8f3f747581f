"""The storage API: bytes by key in namespaces, many items per request, kept by a back end of your choice."""
