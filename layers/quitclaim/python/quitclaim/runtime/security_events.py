"""Security event tokens over HTTP: what is answered (RFC 8935 sections 2.2 to 2.4)."""

import json
from collections.abc import Mapping
from typing import Any, Final

from aws_lambda_powertools.event_handler import Response

from quitclaim.domain.errors import QuitclaimError
from quitclaim.domain.security_events import SetFault, SetRefused
from quitclaim.flows.security_events import HearingOf, hear
from quitclaim.runtime.http import JSON, MAX_BODY, NO_STORE, header, raw_body, status_of
from quitclaim.runtime.telemetry import Telemetry

MEDIA_TYPE: Final = "application/secevent+jwt"


def heard(issuer: str, event: Mapping[str, Any], world: HearingOf, telemetry: Telemetry) -> Response[str]:
    """
    202 without a body once every event of the token is durable, for one that came before as well; 400 with a code of
    the RFC for one that does not hold; 404 where nobody is set up; 503 where nobody can say now, so that it is sent
    again.
    """
    if header(event, "content-type").split(";")[0].strip().lower() != MEDIA_TYPE:
        return _refused(SetRefused(SetFault.INVALID_REQUEST, f"Send the token as {MEDIA_TYPE}."), telemetry)
    body = raw_body(event)
    if len(body) > MAX_BODY:
        return _refused(SetRefused(SetFault.INVALID_REQUEST, "The token is too large."), telemetry)
    try:
        told = hear(issuer, body.strip(), world)
    except QuitclaimError as fault:
        telemetry.warn("security event not taken", code=fault.code)
        again = {"Retry-After": "60"} if status_of(fault) >= 500 else {}
        return Response(status_of(fault), JSON, json.dumps({"code": fault.code}), headers={**NO_STORE, **again})
    if isinstance(told, SetRefused):
        return _refused(told, telemetry)
    telemetry.say("security event", counts={"new": told.new, "known": told.known, "idle": told.idle})
    telemetry.count("SecurityEvents", told.new)
    return Response(202, None, "", headers=dict(NO_STORE))


def _refused(told: SetRefused, telemetry: Telemetry) -> Response[str]:
    telemetry.warn("security event refused", reason=told.fault.value)
    telemetry.count("SecurityEventsRefused")
    body = json.dumps({"err": told.fault.value, "description": told.description})
    return Response(400, JSON, body, headers={**NO_STORE, "Content-Language": "en"})
