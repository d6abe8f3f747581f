"""Which error a client raises for which answer: each API has errors of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pydantic import ValidationError

from httpapi.problem import ProblemBody


@dataclass(frozen=True, slots=True)
class ApiErrors:
    """The error classes of one API, each made from a message.

    api              its name in messages
    misconfigured    an argument of the client is not allowed
    unreachable      no connection, a time-out, half an answer, or an error of the server
    not_understood   what answered does not speak this API: perhaps a balancer, for a moment
    wrong_server     another API, as the type of its problem says, or a page before this API has ever answered: the same
                     at every attempt
    rate_limited     429
    refused          any other refusal that `by_status` does not name
    not_found        the type of the problem that makes a 404 an answer of the API; any other 404 is a wrong URL
    """

    api: str
    misconfigured: type[Exception]
    unreachable: type[Exception]
    not_understood: type[Exception]
    wrong_server: type[Exception]
    rate_limited: type[Exception]
    refused: type[Exception]
    not_found: str
    by_status: Mapping[int, type[Exception]] = field(default_factory=dict)

    def refusal(
        self,
        status: int,
        content: bytes,
        where: str,
        of_call: Mapping[int, type[Exception]] = MappingProxyType({}),
        *,
        server: str = "",
        known: bool = True,
    ) -> Exception:
        """Returns the error for an answer other than 2xx.

        where     the request, for the message
        of_call   errors of this call alone, before those of `by_status`
        server    what answered, as it calls itself
        known     this API has answered at this URL before
        """
        try:
            problem = ProblemBody.model_validate_json(content)
        except ValidationError:
            what = f"something that is no {self.api}{f' ({server})' if server else ''}"
            message = f"{where}: status {status} from {what}: {content[:200]!r}"
            return self._of_status(status, self.not_understood if known else self.wrong_server)(message)
        places = "".join(f"; {part.pointer}: {part.detail}" for part in problem.errors or ())
        message = f"{where}: {status} {problem.detail}{places}"
        if status == 404 and problem.type != self.not_found:
            return self.wrong_server(f"{message}: this is not the {self.api}")
        kind = of_call.get(status) or self.by_status.get(status, self.refused)
        return self._of_status(status, kind)(message)

    def _of_status(self, status: int, otherwise: type[Exception]) -> type[Exception]:
        if status >= 500:
            return self.unreachable
        return self.rate_limited if status == 429 else otherwise
