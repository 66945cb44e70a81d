"""Request bodies of the app's API; a test holds that the hot functions do not import this."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quitclaim.domain.asked import HINT_MAX
from quitclaim.domain.errors import InvalidBodyError
from quitclaim.domain.tokens import MAIN


class Body(BaseModel):
    """A closed body: what is not named is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


Scope = Annotated[str, Field(min_length=1, max_length=300)]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
"""Read as text here; whether it is an id of ours is for `domain.ids` to say, with a code of its own."""


class Proof(Body):
    """What the app saw of a source before it asked for a link of it."""

    connection_id: Name
    source: Name
    instance: Annotated[str, Field(min_length=1, max_length=300)]
    last_seen: Annotated[int, Field(ge=0)]


class Asked(Body):
    """What every start may ask for."""

    return_to: Annotated[str, Field(max_length=2000)] | None = None
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=100)] | None = None
    login_hint: Annotated[str, Field(min_length=1, max_length=HINT_MAX)] | None = None
    metadata: dict[str, str] | None = None
    variables: dict[str, str] = {}
    source: Name | None = None
    source_proof: Proof | None = None


class Connect(Asked):
    """Begin a connection."""

    connection_id: Name
    provider: Name
    client: Name | None = None


class Reconnect(Asked):
    """Begin the next generation."""


class Confirm(Body):
    """Confirm a held grant."""

    generation: Annotated[int, Field(ge=1)]
    code: Annotated[str, Field(min_length=1, max_length=64)]


class Report(Body):
    """Report a version of a token that was refused."""

    token_version: Annotated[int, Field(ge=1)]
    token: Name = MAIN


Reason = Annotated[str, Field(min_length=3, max_length=500)]


class OperatorRetry(Body):
    """Try a revocation again."""

    reason: Reason | None = None


class OperatorAcknowledge(Body):
    """Close a notice of a deleted owner."""

    reason: Reason


class OfConnection(Body):
    """Names a connection."""

    tenant: Name
    owner: Name
    connection_id: Name


class RedriveDeliveries(Body):
    """Have events that nobody had delivered after all; a dry run unless it says otherwise."""

    reason: Reason
    dry_run: bool = True
    id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    client: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    provider: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    connection: OfConnection | None = None
    since: Annotated[int, Field(ge=0)] | None = Field(None, alias="from")
    until: Annotated[int, Field(ge=0)] | None = Field(None, alias="to")
    after: Annotated[str, Field(min_length=1, max_length=2048)] | None = None


def parsed[T: Body](kind: type[T], body: dict[str, Any]) -> T:
    """The body as *kind*. Raises `InvalidBodyError` naming the first field at fault, never its value."""
    try:
        return kind.model_validate(body)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])[:100] or "body"
        raise InvalidBodyError(f"{field}: {first['msg']}", field=field) from None
