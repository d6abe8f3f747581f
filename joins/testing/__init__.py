"""Property tests of a join of two topics, without a broker; `pip install 'teacup-joins[testing]'`.

deadlock.py    demonstrates the article's deadlock
history.py     two topics as plain data (pure)
log.py         a simulated log over a history at a clock's time (pure)
oracle.py      joins a whole history by brute force (pure)
play.py        the small steps that make up a history, and a run over it (pure)
simulation.py  runs a join over a simulated log and clock, with the same code as on Spark
strategies.py  Hypothesis strategies (pure)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teacup.base.process import on_first_use

if TYPE_CHECKING:
    from joins.testing import oracle
    from joins.testing.simulation import Simulation
    from joins.testing.strategies import cuts, histories, tables

__all__ = ["Simulation", "cuts", "histories", "oracle", "tables"]

# Only the strategies need Hypothesis.
__getattr__ = on_first_use(
    __name__,
    {
        "Simulation": "joins.testing.simulation",
        "cuts": "joins.testing.strategies",
        "histories": "joins.testing.strategies",
        "tables": "joins.testing.strategies",
        "oracle": "joins.testing.oracle",
    },
)
