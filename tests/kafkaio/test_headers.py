"""The headers of output records are named in one place."""

import ast
from collections.abc import Iterator

from kafkaio import headers
from tests.support.packages import modules, tree

NOT_HEADERS = {"teacup.lock", "teacup.generation", "teacup.moved", "teacup.proto"}
"""Files in the folder of a checkpoint, and the name of a Protobuf schema."""


def literals(name: str) -> Iterator[str]:
    """The strings of a module that begin like a header, but for names of loggers and docstrings."""
    nodes = list(ast.walk(tree(name)))
    loggers = [
        one for one in nodes if isinstance(one, ast.Call) and ast.unparse(one.func).endswith(("getLogger", "sparse"))
    ]
    others = {id(part) for one in loggers for part in one.args}
    others |= {id(one.value) for one in nodes if isinstance(one, ast.Expr)}
    for one in nodes:
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in others:
            yield from [one.value] * one.value.startswith("teacup.")


def test_no_other_module_writes_a_name_out() -> None:
    """A header that is named twice can be renamed once. The prefix of transactional ids is no header."""
    found = {name: set(literals(name)) - NOT_HEADERS for name in modules()}

    assert {name for name, texts in found.items() if texts} == {"kafkaio.headers", "kafkaio.delivery.fencing"}
    assert found["kafkaio.delivery.fencing"] == {headers.PREFIX}
