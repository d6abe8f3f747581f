"""Jobs to be audited."""

from tests.deploy.jobs.conftest import here, job, window_job

__all__ = ["here", "job", "window_job"]
