"""The headers of output records are named in one place."""

import ast
from collections.abc import Iterator

from tests.support.packages import modules, tree

NOT_HEADERS = {
    *("teacup.lock", "teacup.generation", "teacup.moved", "teacup.name", "teacup.run", "teacup.lease"),
    *("teacup.standby", "teacup.rewound", "teacup.backfill"),
    *("teacup.proto", "teacup.kafka.librdkafka"),
}
"""Files in the folder of a checkpoint, the name of a Protobuf schema, and that of a logger."""


def literals(name: str) -> Iterator[str]:
    """The strings of a module that begin like a header, but for docstrings and names of loggers and modules."""
    nodes = list(ast.walk(tree(name)))
    loggers = [
        node
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("getLogger", "sparse"))
    ]
    others = {id(part) for node in loggers for part in node.args}
    others |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
            is_header = node.value.startswith("teacup.") and node.value.partition(":")[0] not in modules()
            yield from [node.value] * is_header


def test_no_other_module_writes_a_name_out() -> None:
    """A header that is named twice can be renamed once. The prefix of transactional ids is no header."""
    found = {name: set(literals(name)) - NOT_HEADERS for name in modules()}

    assert {name for name, texts in found.items() if texts} == {"teacup.kafka.headers", "teacup.kafka.delivery.fencing"}
    assert found["teacup.kafka.delivery.fencing"] == {"teacup."}
