"""Several servers on one PostgreSQL: each sees what the others acknowledged, and a lost database is waited for."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import requests
from sqlalchemy import create_engine, text

from datadelay.client import DelayClient
from datadelay.errors import ConfigInvalid, DelayError, StoreUnavailable
from datadelay.model import PartitionReport, Submission
from datadelay.publish import rewind
from deploy.broker.lifeline import free_port
from teacup.base.now import wall_ms
from tests.support.delay_process import TOKEN, open_store, put, server_process
from tests.support.postgresql import QUOTED, PostgresServer
from tests.support.times import NOON_MS
from tests.support.waiting import wait_until

Make = Callable[..., Submission]

PAGE = Path(__file__).parents[3] / "docs" / "data-delay.md"

pytestmark = pytest.mark.slow


@dataclass
class Collector:
    """Submits the time, as soon as it can, whatever the answer is; records what was acknowledged."""

    url: str
    topic: str
    acknowledged: set[int] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        """Submits until stopped. A submission that another collector has made late is refused; that is no fault."""
        with DelayClient(self.url, TOKEN, retries=0) as client:
            while not stop.wait(0.005):
                time_ms = wall_ms()
                try:
                    client.submit(
                        Submission(
                            consumer="feeder",
                            topic=self.topic,
                            listed_ms=time_ms,
                            consumed_until_ms=time_ms,
                            partitions=(PartitionReport(0, 0, time_ms),),
                            generation="first",
                        )
                    )
                except DelayError:
                    continue
                self.acknowledged.add(time_ms)


def wait_for_ten_more(collectors: Sequence[Collector]) -> None:
    """Waits until each has ten more acknowledgements."""
    goals = [len(each.acknowledged) + 10 for each in collectors]
    wait_until(lambda: all(len(each.acknowledged) >= goal for each, goal in zip(collectors, goals, strict=True)))


def test_nothing_acknowledged_is_lost_when_a_server_and_the_database_are_killed(
    postgresql: PostgresServer, tmp_path: Path
) -> None:
    """Collectors submit to two servers, for the same topics; the database comes back, and one server goes on."""
    database = postgresql.new_database()
    stop = threading.Event()
    topics = ("a", "b")
    with server_process(database, tmp_path) as (_, other), server_process(database, tmp_path) as (first, url):
        collectors = [Collector(server, topic) for server in (url, other) for topic in topics]
        threads = [threading.Thread(target=each.run, args=(stop,)) for each in collectors]
        for thread in threads:
            thread.start()
        try:
            wait_for_ten_more(collectors)
            postgresql.kill()
            wait_until(lambda: requests.get(f"{other}/readyz", timeout=20).status_code == 503)
            postgresql.start()
            wait_for_ten_more(collectors)
            first.kill()
            wait_for_ten_more(collectors[2:])
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)

        with DelayClient(other, TOKEN) as client:
            for topic in topics:
                history = client.history("feeder", topic, limit=2_000)
                published = [point.consumed_until_ms for point in reversed(history.points)]
                assert set().union(*(each.acknowledged for each in collectors if each.topic == topic)) <= set(published)
                assert published == sorted(set(published))
                assert [point.sequence for point in history.points] == list(range(len(published), 0, -1))
                assert client.read("feeder", topic).consumed_until_ms == published[-1]


def test_a_store_shows_what_another_one_wrote(postgresql: PostgresServer, submission: Make) -> None:
    """Also that it was deleted, and submitted again; what has not changed is not read again."""
    database = postgresql.new_database()
    with open_store(database) as first, open_store(database) as other:
        put(first, submission(topic="a"), NOON_MS)
        put(other, submission(topic="b"), NOON_MS)
        before = first.all()

        other.change("feeder", "b", lambda entry: rewind(entry or pytest.fail("gone"), now_ms=NOON_MS), NOON_MS)
        rewound = first.all()
        other.forget("feeder", "b")
        without = first.all()
        again = put(other, submission(topic="b"), NOON_MS)

        assert [entry.last.topic for entry in before] == ["a", "b"]
        assert rewound[0] is before[0]
        assert (rewound[1].value_ms, without) == (None, [before[0]])
        assert first.get("feeder", "b") == again


def test_servers_that_start_together_migrate_once(postgresql: PostgresServer) -> None:
    """An empty database; each finds it migrated, by itself or by another."""
    database = postgresql.new_database()

    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(open_store, [database] * 4))

    for store in stores:
        store.close()


def test_of_two_first_submissions_at_once_one_comes_second(postgresql: PostgresServer, submission: Make) -> None:
    """There is no row yet that could be locked."""
    database = postgresql.new_database()
    with open_store(database) as first, open_store(database) as other, ThreadPoolExecutor(2) as pool:
        for number in range(10):
            made = submission(topic=f"t{number}")
            list(pool.map(partial(put, submission=made, now_ms=NOON_MS), (first, other)))
            history = first.history("feeder", made.topic, limit=9, before=None, since_ms=None)

            assert [point.sequence for point in history] == [1]


def test_a_connection_that_became_read_only_is_replaced(postgresql: PostgresServer, submission: Make) -> None:
    """As after a fail-over; and a server that cannot write is not ready."""
    database = postgresql.new_database()
    open_store(database).close()
    set_read_only(database, "on")
    with open_store(database) as store:
        with pytest.raises(StoreUnavailable, match="read-only"):
            store.check()
        with pytest.raises(StoreUnavailable, match="read-only"):
            put(store, submission(), NOON_MS)
        set_read_only(database, "off")

        put(store, submission(), NOON_MS)
        store.check()


def set_read_only(database: str, state: str) -> None:
    """Makes the database read-only, or writable again, for the next connections."""
    engine = create_engine(database.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("SET default_transaction_read_only = off"))
        name = connection.execute(text("SELECT current_database()")).scalar()
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = {state}"))
    engine.dispose()


def test_the_next_host_is_used_when_the_first_does_not_answer(postgresql: PostgresServer, submission: Make) -> None:
    """As the URL of a cluster names them."""
    database = postgresql.new_database()
    hosts = f"host=127.0.0.1:{free_port()}&host=127.0.0.1:{postgresql.port}&target_session_attrs=read-write"
    name = database.rsplit("/", 1)[1]

    with open_store(f"postgresql://teacup:{QUOTED}@/{name}?{hosts}") as store:
        put(store, submission(), NOON_MS)

        assert len(store.all()) == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("a-secret", "another"), "authentication failed"),
        (("/postgres", "/missing"), 'database "missing" does not exist'),
        (("/postgres", "/postgres?no_option=1"), 'invalid connection option "no_option"'),
        (("/postgres", "/postgres?sslmode=require"), "server does not support SSL"),
        (("/postgres", "/postgres?options=-c%20statement_timeout%3Dsoon"), "invalid value for parameter"),
    ],
)
def test_a_url_that_is_refused_is_an_error_of_the_configuration(
    postgresql: PostgresServer, wrong: tuple[str, str], words: str
) -> None:
    """Trying again would not help, unlike with a server that is not there."""
    with pytest.raises(ConfigInvalid, match=f"^database: .*{words}.*; correct its user"):
        open_store(postgresql.url().replace(*wrong))
    with pytest.raises(StoreUnavailable, match="refused"):
        open_store(postgresql.url().replace(str(postgresql.port), str(free_port())))


def test_a_database_that_is_set_up_as_documented_belongs_to_its_user(postgresql: PostgresServer) -> None:
    """Under names of its own. Another user's is refused, with what to change."""
    (block,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    user, name = f"user_{uuid4().hex}", f"delay_{uuid4().hex}"
    statements = block.replace("teacup", user).replace("DATABASE delay", f"DATABASE {name}")
    engine = create_engine(postgresql.url().replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements.strip().split("\n"):
            connection.execute(text(statement))
    engine.dispose()
    url = f"postgresql://{user}:a-password@127.0.0.1:{postgresql.port}"

    open_store(f"{url}/{name}").close()
    with pytest.raises(ConfigInvalid, match=r"schema public.*database must belong"):
        open_store(f"{url}/{postgresql.new_database().rsplit('/', 1)[1]}")


@pytest.mark.parametrize("wrong", ["password", "port", "database", "option"])
def test_no_message_shows_the_password(postgresql: PostgresServer, wrong: str) -> None:
    """Whatever is wrong; but it says what."""
    url = {
        "password": postgresql.url(password="not-the-secret"),
        "port": postgresql.url().replace(str(postgresql.port), str(free_port())),
        "database": postgresql.url("missing"),
        "option": f"{postgresql.url()}?sslmode=secret",
    }[wrong]
    words = {
        "password": "authentication failed",
        "port": "refused",
        "database": '"missing" does not exist',
        "option": "sslmode",
    }

    with pytest.raises(DelayError, match=words[wrong]) as raised:
        open_store(url)

    cause: BaseException | None = raised.value
    while cause is not None:
        assert "a-secret" not in str(cause)
        assert "not-the-secret" not in str(cause)
        cause = cause.__cause__
