"""A master that cannot be reached ends the start at once, before Spark's JVM would look for it."""

from __future__ import annotations

import socket

import pytest

from deploy.broker.lifeline import free_port
from teacup.base.errors import ExitCode
from teacup.spark.cluster import addresses_of, check_master
from teacup.spark.errors import MasterUnreachable
from teacup.spark.session import java_reason, start_failed


def test_a_master_has_the_addresses_that_it_names() -> None:
    """Those without any are started here, or found by Hadoop's configuration."""
    assert addresses_of("spark://one:7077,two:7078") == [("one", 7077), ("two", 7078)]
    assert addresses_of("spark://[::1]:7077") == [("::1", 7077)]
    assert addresses_of("k8s://https://api.example:6443") == [("api.example", 6443)]
    assert [addresses_of(master) for master in ("local[2]", "local-cluster[1,1,512]", "yarn")] == [[], [], []]


def test_one_address_that_accepts_a_connection_is_enough() -> None:
    """The others may be standbys that are down."""
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]

        check_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}")


def test_a_master_that_accepts_none_is_refused_at_once() -> None:
    """The message names each address, and what happened there."""
    one, two = free_port(), free_port()

    with pytest.raises(MasterUnreachable) as error:
        check_master(f"spark://127.0.0.1:{one},127.0.0.1:{two}")

    assert error.value.exit_code is ExitCode.UNREACHABLE
    assert all(f"127.0.0.1:{port}: Connection refused" in str(error.value) for port in (one, two))


def test_a_server_that_is_no_master_is_not_called_a_stopped_context() -> None:
    """Java's reason is what follows from it."""
    reason = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."

    failed = start_failed("spark://one:8080", reason)

    assert failed.exit_code is ExitCode.UNREACHABLE
    assert "spark://one:8080 did not take the job" in str(failed)
    assert str(start_failed("local[2]", reason)) == f"Spark did not start: {reason}"


def test_the_reason_in_an_error_of_java_is_its_last_cause() -> None:
    """Without the stacks."""
    text = "An error occurred while calling X.\n: a.B: first\n\tat c.d(E.java)\nCaused by: f.G: second\n\t... 1 more\n"

    assert java_reason(text) == "f.G: second"
    assert java_reason("An error occurred while calling X.\n: a.B: first\n\tat c.d(E.java)") == "a.B: first"
    assert java_reason("nothing of the kind") == "nothing of the kind"
