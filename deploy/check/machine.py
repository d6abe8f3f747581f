"""What a job needs on this machine before it reads anything: Java, a user with a name, folders, Spark's master.

A cache is optional: without one, Spark's home is created at each start, and its classes are loaded one by one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from deploy.check.findings import Finding, PlaceFacts, error, of_place, ok, warning
from deploy.jobfile.job import CommonJob
from teacup.base.cache import cache_folder, cache_folders, cached
from teacup.base.disks import disk_of, existing, room_for
from teacup.base.errors import ExitCode
from teacup.base.fields import local_folder
from teacup.spark.cluster import addresses_of, check_master
from teacup.spark.conf import master_of
from teacup.spark.errors import MasterUnreachable, MissingTool
from teacup.spark.java import archive_name, check_java, java_of


def written_folders(job: CommonJob) -> dict[str, Path]:
    """Returns the local folders that any kind of job writes to, by purpose."""
    folders = {} if (checkpoint := local_folder(job.checkpoint)) is None else {"checkpoint": checkpoint}
    with suppress(FileNotFoundError):
        folders["TMPDIR"] = Path(tempfile.gettempdir())
    return {**folders, **spark_folders(job.spark)}


def spark_folders(given: Mapping[str, str]) -> dict[str, Path]:
    """Returns the local folders that Spark writes to, if configured (otherwise the temporary one)."""
    named = {"SPARK_LOCAL_DIRS": os.environ.get("SPARK_LOCAL_DIRS"), "spark.local.dir": given.get("spark.local.dir")}
    return {
        key if at == 0 else f"{key}, {at + 1}": Path(folder)
        for key, listed in named.items()
        for at, folder in enumerate((listed or "").split(","))
        if folder
    }


def of_machine(spark: Mapping[str, str]) -> Iterator[Finding]:
    """Checks this machine as a job does when it starts. `spark` holds the job's Spark properties."""
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
    for key, folder in {"TMPDIR": Path(temporary), **spark_folders(spark)}.items():
        yield of_place(folder_facts(key, folder, "is for temporary files"))
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
    """Says whether the job leaves cores for other applications of a standalone cluster."""
    if master_of(spark).startswith("spark://") and "spark.cores.max" not in spark:
        yield warning(
            "spark.cores.max",
            "not set: the job takes all free cores (unless the master has `spark.deploy.defaultCores`), and the next "
            "job on this cluster has no executor: give each job its share",
        )


def folder_facts(key: str, folder: Path, content: str = "") -> PlaceFacts:
    """Checks a local folder, which the job creates if it is missing.

    Tries whether it can hold a file, with an unnamed one.
    """
    there = existing(folder)
    disk = disk_of(there)
    if disk.problem:
        problem = f"the disk of {folder} {disk.problem}: make room there, or make it writable"
    elif not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problem = f"{folder} cannot be written to; give the job a folder that its user may write to"
    elif refusal := room_for(there):
        problem = f"{folder} takes no file ({refusal}): make room there, or raise the quota"
    else:
        return PlaceFacts(key=key, location=str(folder), content=content, free_bytes=disk.free_bytes)
    return PlaceFacts(key=key, location=str(folder), problem=problem)
