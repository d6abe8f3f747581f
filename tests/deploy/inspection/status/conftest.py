"""What the tests of `teacup status` share."""

from tests.deploy.jobs.conftest import window_job
from tests.support.jobhere import here

__all__ = ["here", "window_job"]
