"""Oddities of single providers, beside what their entries say: facts with the same sources."""

from typing import Final

from tests.conformance.impersonated import Quirks

QUIRKS: Final[dict[str, Quirks]] = {
    "asana": Quirks(members={"data.name": "Ann", "data.email": "ann@example.com"}),
    "atlassian": Quirks(
        dead_refresh=(403, {"error": "unauthorized_client", "error_description": "refresh_token is invalid"})
    ),
    "box": Quirks(unknown_token=(400, {"error": "invalid_token"})),
    "calendly": Quirks(members={"organization": "https://api.calendly.com/organizations/o1"}),
    "dropbox": Quirks(members={"uid": "12345", "account_id": "731"}),
    "fitbit": Quirks(
        dead_refresh=(
            400,
            {
                "errors": [{"errorType": "invalid_grant", "message": "Refresh token invalid: {token}. Visit …"}],
                "success": False,
            },
        )
    ),
    "github": Quirks(answers_forms=True, no_expiry=True, dead_refresh=(200, {"error": "bad_verification_code"})),
    "github-app": Quirks(
        expires_as_text=True,
        members={"scope": "", "refresh_token_expires_in": "15811200"},
        dead_refresh=(200, {"error": "bad_refresh_token", "error_description": "…", "error_uri": "https://…"}),
    ),
    "gitlab": Quirks(members={"created_at": 1_796_000_000}, revoke_body={}),
    "google": Quirks(members={"refresh_token_expires_in": 604799}),
    "intercom": Quirks(no_expiry=True),
    "linkedin": Quirks(members={"refresh_token_expires_in": 31_536_000}),
    "mailchimp": Quirks(members={"expires_in": 0, "scope": None}),
    "monzo": Quirks(
        dead_refresh=(400, {"code": "bad_request.refresh_token.invalid", "message": "Refresh token is invalid."}),
        members={"client_id": "client-1"},
    ),
    "notion": Quirks(no_expiry=True, members={"bot_id": "b1", "duplicated_template_id": None}),
    "polar": Quirks(no_expiry=True),
    "quickbooks": Quirks(rotates_sometimes=(False, True), members={"x_refresh_token_expires_in": 8_726_400}),
    "salesforce": Quirks(no_expiry=True, members={"instance_url": "https://ann.my.salesforce.com"}),
    "shopify": Quirks(members={"refresh_token_expires_in": 7_776_000}),
    "slack": Quirks(
        members={"app_id": "A1"},
        dead_refresh=(200, {"ok": False, "error": "invalid_refresh_token"}),
    ),
    "spotify": Quirks(rotates_sometimes=(False,)),
    "square": Quirks(revoke_body={"success": True}),
    "strava": Quirks(rotates_sometimes=(False, True)),
    "stripe-connect": Quirks(no_expiry=True, members={"livemode": True}, revoke_body={"stripe_user_id": "731"}),
    "twitch": Quirks(scopes_as_list=True, unknown_token=(400, {"status": 400, "message": "Invalid token"})),
    "typeform": Quirks(account="ann@example.com"),
    "withings": Quirks(
        dead_refresh=(200, {"status": 401, "body": {}, "error": "XRequestID: Not provided invalid_token"})
    ),
    "x": Quirks(revoke_body={"revoked": True}),
    "zendesk": Quirks(members={"refresh_token_expires_in": 7_776_000}),
}
"""A provider that is not here does what its entry says and nothing else."""
