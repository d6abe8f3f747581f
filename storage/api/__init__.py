"""The storage API: arbitrary bytes by key in namespaces, many items per request."""
