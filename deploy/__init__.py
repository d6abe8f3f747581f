"""The one place that puts parts together: the `teacup` command, job files, sessions, the development broker."""
