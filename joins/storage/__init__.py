"""The storage API: bytes by key in namespaces, many items a request, kept by a back end of choice."""
