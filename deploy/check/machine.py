"""What a job needs of this machine before anything is read: Java, a user with a name, folders, Spark's master.

A cache is not needed: without one Spark's home is made at each start, and its classes are loaded one by one.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping

from deploy.check.findings import LITTLE_SPACE, Finding, error, ok, warning
from teacup.base.cache import cache_folder, cache_folders, cached
from teacup.base.errors import ExitCode
from teacup.spark.cluster.master import addresses_of, check_master
from teacup.spark.conf import master_of
from teacup.spark.errors import MasterUnreachable, MissingTool
from teacup.spark.java import archive_name, check_java, java_of


def of_machine(spark: Mapping[str, str]) -> Iterator[Finding]:
    """Looks at this machine, as a job does when it starts; spark: its properties."""
    master = master_of(spark)
    try:
        check_java()
        java = java_of()
    except MissingTool as missing:
        yield error("java", str(missing), missing.exit_code)
    else:
        archive = cached(archive_name())
        classes = "" if archive is None else f", with Spark's classes from {archive}"
        yield ok("java", f"{java}{classes}")
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError as error_:
        yield error("TMPDIR", f"{error_.strerror}: name a folder that can be written to", ExitCode.BAD_JOB_FILE)
        return
    free = shutil.disk_usage(temporary).free
    text = f"{temporary}, for temporary files, {free / 1e9:,.1f} GB free"
    yield ok("TMPDIR", text) if free >= LITTLE_SPACE else warning("TMPDIR", f"{text}: little")
    cache = cache_folder()
    prepared = [str(folder) for folder in cache_folders() if folder.is_dir()]
    read_only = f"{prepared[0]}, read only" if prepared else "no folder can be written to: nothing is cached"
    yield ok("TEACUP_CACHE", f"{cache}, for caches" if cache else read_only)
    if addresses_of(master):
        try:
            check_master(master)
        except MasterUnreachable as unreachable:
            yield error("spark.master", str(unreachable), unreachable.exit_code)
        else:
            yield ok("spark.master", f"{master} accepts connections")
    yield from of_cores(spark)


def of_cores(spark: Mapping[str, str]) -> Iterator[Finding]:
    """Says whether other applications of a standalone cluster get cores beside the job."""
    if master_of(spark).startswith("spark://") and "spark.cores.max" not in spark:
        yield warning(
            "spark.cores.max",
            "not set: the job takes all free cores (unless the master has `spark.deploy.defaultCores`), and the next "
            "job on this cluster has no executor: give each job its share",
        )
