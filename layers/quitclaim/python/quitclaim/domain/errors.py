"""
Everything that can go wrong, one class and one stable code each.

The HTTP status of a class is one table in `runtime/http.py`. A message carries ids, never secrets; `details` holds only
keys of `DETAILS`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

DETAILS: Final = frozenset(
    {
        "field",
        "connection_id",
        "provider",
        "client",
        "generation",
        "return_to",
        "blockers",
        "state",
        "reason",
        "deadline",
        "manual_page",
        "copy",
    }
)


class QuitclaimError(Exception):
    """The root: *code* is stable, *message* is for a person, *retry_after_ms* says when trying again makes sense."""

    code: ClassVar[str] = "INTERNAL"
    sentence: ClassVar[str] = "Something went wrong on our side."
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None, *, retry_after_ms: int | None = None, **details: object) -> None:
        unknown = details.keys() - DETAILS
        if unknown:
            raise ValueError(f"not a detail that an error may carry: {sorted(unknown)}")
        super().__init__(message or self.sentence)
        self.message = message or self.sentence
        self.retry_after_ms = retry_after_ms
        self.details = details


# --- the caller wrote something we cannot read -----------------------------------------------------------------------


class InvalidRequestError(QuitclaimError):
    """The request cannot be read."""

    code = "INVALID_REQUEST"
    sentence = "The request cannot be read."


class InvalidIdError(InvalidRequestError):
    """An id is out of pattern."""

    code = "INVALID_ID"
    sentence = "An id must match [A-Za-z0-9._-]{1,128}."


class InvalidBodyError(InvalidRequestError):
    """The body is not the JSON this route takes."""

    code = "INVALID_BODY"
    sentence = "The body is not the JSON object that this route takes."


class InvalidParameterError(InvalidRequestError):
    """A parameter of the query is out of bounds."""

    code = "INVALID_PARAMETER"
    sentence = "A parameter of the query is not what this route takes."


class ContentTypeError(InvalidRequestError):
    """The body is not declared as JSON."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    sentence = "Send the body as application/json."


class BodyTooLargeError(InvalidRequestError):
    """The body is larger than 64 KiB."""

    code = "BODY_TOO_LARGE"
    sentence = "A body may hold 64 KiB at most."


class ReturnToInvalidError(InvalidRequestError):
    """The return target is not on an allowed origin."""

    code = "RETURN_TO_INVALID"
    sentence = "return_to is not on an allowed origin (template parameter ReturnOrigins)."


class ScopeNotAllowedError(InvalidRequestError):
    """A scope that the client's settings do not admit (S-23)."""

    code = "SCOPE_NOT_ALLOWED"
    sentence = "A scope is not among those that the client may ask for."


class IfMatchRequiredError(InvalidRequestError):
    """A stop must name the generation it saw."""

    code = "IF_MATCH_REQUIRED"
    sentence = 'Name the generation you saw in an If-Match header, for instance If-Match: "3".'


class StateMissingError(InvalidRequestError):
    """A callback without state."""

    code = "OAUTH_STATE_MISSING"
    sentence = "The callback carries no state."


class ParameterRepeatedError(InvalidRequestError):
    """A callback with a parameter twice (RFC 6749 section 3.1)."""

    code = "OAUTH_PARAMETER_REPEATED"
    sentence = "The callback carries a parameter more than once."


class StateInvalidError(InvalidRequestError):
    """A state or ticket that is unknown, expired or discarded."""

    code = "OAUTH_STATE_INVALID"
    sentence = "This link or callback is unknown or has expired."


class ProviderMismatchError(InvalidRequestError):
    """A callback on another provider's path."""

    code = "OAUTH_PROVIDER_MISMATCH"
    sentence = "The callback belongs to another provider."


class IssuerMismatchError(InvalidRequestError):
    """A callback with a wrong or missing `iss` (RFC 9207 section 2.4)."""

    code = "OAUTH_ISSUER_MISMATCH"
    sentence = "The callback was not issued by the provider that was asked."


class CallbackParameterError(InvalidRequestError):
    """A callback with a value for the provider's addresses that the catalogue does not allow (S-8)."""

    code = "OAUTH_PARAMETER_INVALID"
    sentence = "The callback carries a value that this provider cannot have sent."


class CallbackRejectedError(InvalidRequestError):
    """The provider answered with an error instead of a code."""

    code = "OAUTH_CALLBACK_REJECTED"
    sentence = "The provider did not grant access."


class CodeMissingError(InvalidRequestError):
    """A callback with neither code nor error."""

    code = "OAUTH_CODE_MISSING"
    sentence = "The callback carries no authorization code."


# --- understood, and no ----------------------------------------------------------------------------------------------


class RefusedError(QuitclaimError):
    """Understood, and no."""

    code = "REFUSED"
    sentence = "This is not possible now."


class NotFoundError(RefusedError):
    """No such route or thing; a foreign one answers the same."""

    code = "NOT_FOUND"
    sentence = "There is no such thing here."


class ConnectionNotFoundError(NotFoundError):
    """No such connection of this owner."""

    code = "CONNECTION_NOT_FOUND"
    sentence = "This owner has no such connection."


class ProviderNotRegisteredError(NotFoundError):
    """The provider or client is not set up in this stack."""

    code = "PROVIDER_NOT_REGISTERED"
    sentence = "This provider or client is not set up here."


class BindingMismatchError(RefusedError):
    """The callback came from another browser than the one that started (RB-50)."""

    code = "OAUTH_BINDING_MISMATCH"
    sentence = "Finish in the browser in which you started."


class WrongCodeError(RefusedError):
    """The confirmation code is wrong."""

    code = "CONFIRM_CODE_WRONG"
    sentence = "The confirmation code is wrong."


class OwnerDeletedError(RefusedError):
    """The owner was deleted, for good."""

    code = "OWNER_DELETED"
    sentence = "This owner was deleted."


class IdempotencyMismatchError(RefusedError):
    """The idempotency key was used with another request."""

    code = "IDEMPOTENCY_KEY_REUSED"
    sentence = "This Idempotency-Key was used with another request."


class StateReplayedError(RefusedError):
    """The state or ticket was used already; the earlier delivery owns the outcome."""

    code = "OAUTH_STATE_REPLAYED"
    sentence = "This link or callback was used already."


class CallbackRecoveryRequiredError(RefusedError):
    """A callback whose earlier delivery may have obtained access that nobody holds (M-31)."""

    code = "OAUTH_CALLBACK_RECOVERY_REQUIRED"
    sentence = (
        "An earlier delivery of this callback may have obtained access that nobody holds: remove it at the provider."
    )


class StateSupersededError(RefusedError):
    """A newer start of the same connection exists."""

    code = "OAUTH_STATE_SUPERSEDED"
    sentence = "A newer attempt to connect has replaced this one."


class StateConflictError(RefusedError):
    """The connection's state does not allow this."""

    code = "CONNECTION_STATE_CONFLICT"
    sentence = "The connection's state does not allow this."


class StepUpNotPossibleError(RefusedError):
    """A wider grant cannot be got beside the live one at this provider (U-6)."""

    code = "STEP_UP_NOT_POSSIBLE"
    sentence = (
        "This provider's grants are not known to be independent: disconnect, then connect with the scopes you need."
    )


class ConnectionReconcilingError(RefusedError):
    """The provider is being asked what became of an earlier attempt."""

    code = "CONNECTION_RECONCILING"
    sentence = "An earlier attempt is still being settled with the provider."
    retryable = True


class ConnectBlockedError(RefusedError):
    """Something is still owed for this owner and client; details name it."""

    code = "CONNECT_BLOCKED"
    sentence = "Something of an earlier connection is still unsettled."


class OwnerPurgingError(RefusedError):
    """A stop's purge is still pending."""

    code = "OWNER_PURGING"
    sentence = "Data of the stopped connection is still being removed."
    retryable = True


class GrantNotInstalledError(RefusedError):
    """The attempt ended; its grant, if any, is queued for revocation."""

    code = "GRANT_NOT_INSTALLED"
    sentence = "The attempt ended before the grant was installed; what the provider returned is being revoked."


class ImportNotSupportedError(RefusedError):
    """What cannot be refreshed cannot be imported: nothing would show that the token is good."""

    code = "IMPORT_NOT_SUPPORTED"
    sentence = "Grants of this provider cannot be imported: they cannot be refreshed."


class ImportFailedError(RefusedError):
    """The provider did not take the token: it stays what it was, and our copy of it is gone. Nothing was revoked."""

    code = "IMPORT_FAILED"
    sentence = "The provider did not take the token: nothing was imported, and nothing was revoked."


class RemovalRequiredError(RefusedError):
    """The owner must remove the access at the provider and acknowledge it."""

    code = "PERMISSION_REMOVAL_REQUIRED"
    sentence = "Access may exist at the provider that we cannot revoke: remove it there, then acknowledge."


class SourceStartStaleError(RefusedError):
    """What the app saw of a source before it asked for a link of it is no longer so (M-13, M-14)."""

    code = "CONNECTION_SOURCE_START_STALE"
    sentence = "The source is not what you saw: look at it again."
    retryable = True


class SourceAdmissionNotCommittedError(RefusedError):
    """
    The app was asked whether its admission of the source that a link was for is committed, and did not say so (M-44).
    """

    code = "CONNECTION_SOURCE_ADMISSION_NOT_COMMITTED"
    sentence = "The app has not admitted what was linked."


class NeedsReconnectError(RefusedError):
    """The grant was lost at the provider."""

    code = "NEEDS_RECONNECT"
    sentence = "The provider no longer honours this grant: connect again."


class GenerationMovedError(RefusedError):
    """The generation named is not the current one; nothing changed."""

    code = "GENERATION_MOVED"
    sentence = "The connection has moved on from that generation; nothing was changed."


class NothingToAcknowledgeError(RefusedError):
    """No notice is open for this connection."""

    code = "NOTHING_TO_ACKNOWLEDGE"
    sentence = "There is no notice to acknowledge."


class NoticeNotFoundError(NotFoundError):
    """No revocation or exchange of that id."""

    code = "NOTICE_NOT_FOUND"
    sentence = "There is no revocation or exchange of this id."


class OwnerMustAcknowledgeError(RefusedError):
    """An operator may close the notices of deleted owners only."""

    code = "OWNER_MUST_ACKNOWLEDGE"
    sentence = "The owner is not deleted: only the owner can say that the access is gone."


class RetryRefusedError(RefusedError):
    """The revocation is settled, or parked beside a grant that is in use."""

    code = "RETRY_NOT_POSSIBLE"
    sentence = "Only a pending revocation can be tried again."


class RevocationInProgressError(RefusedError):
    """A call of the revocation may still act."""

    code = "REVOCATION_IN_PROGRESS"
    sentence = "The revocation is being sent: try again once its claim is over."
    retryable = True


class TooEarlyToAcknowledgeError(RefusedError):
    """The window of the exchange is not over: its grant may still arrive."""

    code = "ACKNOWLEDGE_TOO_EARLY"
    sentence = "The attempt may still be answered: acknowledge once its window is over."
    retryable = True


class RefreshInProgressError(RefusedError):
    """Another call holds the refresh lease."""

    code = "REFRESH_IN_PROGRESS"
    sentence = "Another call is refreshing this grant."
    retryable = True


# --- someone was faster ----------------------------------------------------------------------------------------------


class WebhooksNotSupportedError(NotFoundError):
    """No events of this provider are taken at this address: not set up, not known how, or another address (M-61)."""

    code = "WEBHOOKS_NOT_SUPPORTED"
    sentence = "No webhooks are taken here."


class WebhookRefusedError(RefusedError):
    """A webhook that is not believed. Why is a metric; who sent it is told nothing."""

    code = "WEBHOOK_REFUSED"
    sentence = "This request is not taken."


class WebhookAccountNotReadyError(RefusedError):
    """No connection of the event's account can take it now, and its provider sends it again (M-72, M-77, M-78)."""

    code = "WEBHOOK_ACCOUNT_NOT_READY"
    sentence = "The account is not ready for this event yet."
    retryable = True


class WebhookSourceNotReadyError(RefusedError):
    """The source that the event names is connected behind no account of it, and its provider sends it again (M-74)."""

    code = "WEBHOOK_SOURCE_NOT_READY"
    sentence = "The source is not ready for this event yet."
    retryable = True


class MovedError(QuitclaimError):
    """Someone was faster: what was seen is no longer so. Look again and retry."""

    code = "CONFLICT"
    sentence = "Someone else changed this at the same time: try again."
    retryable = True

    def __init__(self, *, seen: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.seen = dict(seen or {})
        """What refused, by the name of the write, and what was found there (None: nothing, or not read)."""


# --- the provider ----------------------------------------------------------------------------------------------------


class ProviderError(QuitclaimError):
    """The provider's side."""

    code = "PROVIDER_ERROR"
    sentence = "The provider did not do what was asked."


class ProviderRefusedError(ProviderError):
    """The provider refused this request for good."""

    code = "PROVIDER_REFUSED"
    sentence = "The provider refused the request."


class ProviderBusyError(ProviderError):
    """The provider wants us to try later."""

    code = "PROVIDER_BUSY"
    sentence = "The provider cannot answer now."
    retryable = True


class OutcomeUnknownError(ProviderError):
    """The request left and nobody knows what became of it."""

    code = "OUTCOME_UNKNOWN"
    sentence = "The request left and its outcome is unknown."
    retryable = True


class ExchangeUnconfirmedError(OutcomeUnknownError):
    """The code was sent and its outcome is unknown."""

    code = "EXCHANGE_UNCONFIRMED"
    sentence = "The provider may have granted access, but its answer did not arrive."
    retryable = False


class ClientConfigError(ProviderError):
    """The client's credentials or settings are missing or refused; no connection is to blame."""

    code = "CLIENT_MISCONFIGURED"
    sentence = "The client's credentials or settings for this provider are missing or refused."


class FlowNotSupportedError(QuitclaimError):
    """The catalogue's provider cannot be connected to (any more)."""

    code = "CONNECTION_FLOW_NOT_SUPPORTED"
    sentence = "This provider cannot be connected to."


class SdkSignInNotSupportedError(QuitclaimError):
    """The catalogue's provider gives no token for an app's SDK."""

    code = "SDK_SIGN_IN_NOT_SUPPORTED"
    sentence = "This provider has no sign-in for an app's SDK."


class CallbackUrlRequiredError(QuitclaimError):
    """The stack does not know its public address, to which a provider would send the browser back."""

    code = "CONNECTION_CALLBACK_URL_REQUIRED"
    sentence = "The stack's public address is not set."


# --- our own side ----------------------------------------------------------------------------------------------------


class StoreError(QuitclaimError):
    """The table did not answer."""

    code = "STORAGE_UNAVAILABLE"
    sentence = "The table did not answer: the same request may be repeated."
    retryable = True


class KeyUnavailableError(QuitclaimError):
    """A sealing key cannot be had now. Nothing is lost: ciphertext waits for its key (D-5)."""

    code = "KEY_UNAVAILABLE"
    sentence = "A sealing key is not available now."
    retryable = True


class SealBrokenError(QuitclaimError):
    """Sealed bytes do not open under the key they name."""

    code = "SEAL_BROKEN"
    sentence = "Sealed material does not open."


class TimeIsUpError(QuitclaimError):
    """Not enough time is left in this invocation."""

    code = "OUT_OF_TIME"
    sentence = "Not enough time was left: try again."
    retryable = True
