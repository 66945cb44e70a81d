"""
What an entry of the catalogue means for whoever uses it, in words: what holds, what is unknown, and what then happens.

    python -m quitclaim.providers check FILE        one file: what holds, what is unknown
    python -m quitclaim.providers page [--check]    docs/providers.md, made of the whole catalogue

Build time only, as `schema.py`. The one place that says what `unknown` does is `UNKNOWN`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from quitclaim.providers.compile import CATALOGUE, read_entry
from quitclaim.providers.schema import Entry, Pattern, Revocation, Source, Success, filled_revocation
from quitclaim.providers.signatures import HINTED
from quitclaim.providers.webhook_schema import is_signed

UNKNOWN: Final = {
    "authorize.pkce": "The challenge is sent: a provider that does not know it must ignore it (RFC 6749 section 3.1).",
    "authorize.issuer_announced": "A callback without `iss` is taken, one with another issuer is refused where the "
    "issuer is known.",
    "authorize.par": "Requests are not pushed; they go by the browser.",
    "token.default_lifetime_s": "A token whose answer names no lifetime is used until the app reports it or a refresh "
    "is refused.",
    "refresh.rotates": "Counts as yes: a refresh whose answer was lost is sent once more, and a stop after it ends in "
    "a removal notice.",
    "refresh.old_token_after_rotation": "The predecessor is taken to be dead once its successor is saved.",
    "refresh.reuse_kills_family": "Counts as no: a refused replay proves nothing of a successor, which ends in a "
    "removal notice.",
    "refresh.idle_limit_s": "Nothing is refreshed to keep it alive; the first refusal tells.",
    "refresh.absolute_limit_s": "The app is told of an end only where an answer names one.",
    "refresh.one_live_token": "No wider grant is asked for beside a live one.",
    "revocation": "Nothing is called. Every stop ends in a removal notice with the provider's page, as far as it is "
    "known, and waits for the owner's word.",
    "revocation.supported": "As `revocation`.",
    "revocation.takes": "Refresh and access token are sent, one after the other; only when both count as revoked is "
    "the grant.",
    "revocation.success": "No answer by itself counts as revoked. After an answer that looks like one, a refresh is "
    "asked for (where there are none, the identity): refused, the grant is gone. Where neither can be, it ends in a "
    "removal notice.",
    "revocation.already_gone": "A refusal tells nothing: a refresh is asked for (where there are none, the identity) "
    "and, if that is refused, the grant is gone. Where neither can be, it is tried to the deadline, then a removal "
    "notice.",
    "revocation.reach": "Taken at its worst both ways: other grants of the account are spared first, and an old token "
    "is taken to survive.",
    "revocation.needs_live_access_token": "Counts as yes where an access token is taken: an expired one is renewed "
    "first.",
    "revocation.manual_page": "The removal notice says to look in the account's settings, without an address.",
    "identity": "Grants are not told apart by account: another account is not noticed at a reconnect, and a revocation "
    "that may reach others waits for its removal notice.",
    "webhooks": "Its events are not taken: nobody has read how they are signed and what they say.",
}
"""What `unknown` does, by key. A key that is not here has no effect on what is done."""
REACHES: Final = {
    "token": "the token alone",
    "pair": "the access token and its refresh token",
    "family": "the grant it came from, with every token of it",
    "authorization": "every grant of this person under this client",
    "account": "every grant of this account under this client",
    "installation": "the app's whole installation there, for everybody",
    "unknown": "unknown",
}
TAKEN: Final = {
    "refresh": "the refresh token",
    "access": "the access token",
    "either": "either token",
    "account": "the account's id, no token",
    "unknown": "unknown which token, so both",
}
STATUS: Final = {"active": "", "sunset": "ends on", "shut_down": "shut down on"}
PAGE: Final = Path(__file__).parents[5] / "docs" / "providers.md"


def unknowns(entry: Entry) -> list[str]:
    """The keys of *entry* that are unknown and change what is done, as `UNKNOWN` names them."""
    told, found = entry.model_dump(mode="json"), []
    for key in UNKNOWN:
        block, _, name = key.partition(".")
        if not name:
            continue
        value = told[block].get(name) if isinstance(told[block], dict) else None
        if value == "unknown" and _matters(entry, key):
            found.append(key)
    if entry.revocation.shape == "unknown":
        found.append("revocation")
    if entry.identity is None:
        found.append("identity")
    if entry.webhook is None:
        found.append("webhooks")
    return found


def _matters(entry: Entry, key: str) -> bool:
    has_call = entry.revocation.shape not in ("none", "unknown")
    if key.startswith("revocation.") and key != "revocation.manual_page" and not has_call:
        return False
    if key == "revocation.needs_live_access_token":
        return entry.revocation.takes == "access"
    if key.startswith("refresh."):
        is_told = entry.refresh.mode != "none"
        return is_told and (key != "refresh.old_token_after_rotation" or entry.refresh.rotates != "no")
    return True


def disconnect_of(entry: Entry) -> str:
    """What a disconnect does at the provider, in one or two sentences."""
    told = filled_revocation(entry.revocation)
    if entry.status == "shut_down":
        return (
            f"Nothing: the provider shut it down on {entry.ends_on}. What was queued is closed with a removal notice."
        )
    if told.shape == "none":
        return "Nothing can be called. The owner removes the access on the provider's page and says so."
    if told.shape == "unknown":
        return "Nothing is called, because no way was found. The owner removes the access by hand and says so."
    what = "several requests" if told.adapter else f"`{told.method} {_shown(told.url or '')}`"
    ends = "How far it reaches is unknown." if told.reach == "unknown" else f"Ends {REACHES[told.reach or '']}."
    text = f"Sends {what} with {TAKEN[told.takes or 'unknown']}. {ends}"
    if told.supported == "undocumented":
        text += " The provider documents no such call."
    if told.needs_live_access_token == "yes":  # noqa: S105 - a fact
        text += " The access token must be alive"
        text += "." if entry.refresh.mode == "none" else ": an expired one is renewed first."
    return text


def success_of(entry: Entry) -> str:
    """What counts as revoked."""
    told = filled_revocation(entry.revocation)
    if told.shape in ("none", "unknown") or entry.status == "shut_down":
        return "the owner's word"
    asked = "a refresh"
    if entry.refresh.mode == "none":
        asked = "a call with the token" if entry.identity and entry.identity.url and told.takes == "access" else ""
    if not isinstance(told.success, Success):
        return f"no answer by itself; {asked} that is refused after it" if asked else "no answer by itself"
    said = "/".join(map(str, told.success.status))
    if told.success.body == "empty":
        said += ", no body"
    elif told.success.body != "any":
        said += f", `{told.success.body.path}` is `{str(told.success.body.equals).lower()}`"
    gone = told.already_gone
    if gone == "same_as_success":
        said += "; a dead token is answered alike"
    elif not isinstance(gone, str):
        said += f"; dead already: {_patterns(gone)}"
    if not isinstance(told.ambiguous, str):
        said += f"; {_patterns(told.ambiguous)} tells nothing by itself"
        said += f": {asked} does" if asked else ""
    return said


def _patterns(told: Pattern | Sequence[Pattern]) -> str:
    listed = [told] if isinstance(told, Pattern) else list(told)
    return ", ".join("/".join(map(str, each.status)) + "".join(f" `{code}`" for code in each.errors) for each in listed)


def _shown(url: str) -> str:
    return url.replace("{token}", "…")


# --- one file ------------------------------------------------------------------------------------------------------


def report(entry: Entry) -> str:
    """What `check` prints of a file that loads."""
    told = filled_revocation(entry.revocation)
    lines = [
        f"{entry.id}: {entry.name}, as of {entry.checked_on}",
        "",
        "holds",
        f"  disconnect  {disconnect_of(entry)}",
        f"  revoked if  {success_of(entry)}",
        f"  refresh     {refresh_of(entry)}",
        f"  account     {identity_of(entry)}",
        f"  removal     {told.manual_page or 'no page given'}",
    ]
    lines += [f"  by hand     {name} from {each.source}, {_allowed(each)}" for name, each in entry.placeholders.items()]
    lines += ["", "unknown, and what that means"]
    lines += [f"  {key}: {_plain(UNKNOWN[key])}" for key in unknowns(entry)] or ["  nothing"]
    if entry.remembered:
        lines += ["", "remembered, not read: if it is wrong, connecting fails", f"  {', '.join(entry.remembered)}"]
    return "\n".join(lines) + "\n"


def refresh_of(entry: Entry) -> str:
    """How its grants are kept alive."""
    told = entry.refresh
    if told.mode == "none":
        return "none: an access token lives until it is revoked or expires"
    said = {
        "refresh_token": "by refresh token",
        "refresh_token_optional": "by refresh token, where the app gets one",
        "access_token_exchange": "the access token renews itself",
    }[told.mode]
    said += {
        "yes": ", which is replaced each time",
        "sometimes": ", which is replaced now and then",
        "no": "",
        "unknown": "",
    }[told.rotates]
    if told.old_token_after_rotation != "unknown":  # noqa: S105 - a fact
        said += {
            "immediate": "; the old one is dead at once",
            "grace": "; the old one lives on for a while",
            "stays_valid": "; the old one stays valid",
        }[told.old_token_after_rotation]
    if isinstance(told.idle_limit_s, int):
        said += f"; dead after {told.idle_limit_s // 86_400} days without one"
    if isinstance(told.absolute_limit_s, int):
        said += f"; dead {told.absolute_limit_s // 86_400} days after the consent"
    if told.one_live_token == "yes":  # noqa: S105 - a fact
        said += "; connecting again ends the grant that was there"
    elif told.one_live_token == "no":  # noqa: S105 - a fact
        said += "; connecting again leaves the grant that was there alone"
    return said


def identity_of(entry: Entry) -> str:
    """How the account is learned."""
    told = entry.identity
    if told is None:
        return "not known"
    ways = []
    if told.in_token_response:
        ways.append(f"`{told.in_token_response}` of the token response")
    if told.in_id_token:
        ways.append(f"`{told.in_id_token}` of the ID token")
    if told.in_placeholder:
        ways.append(f"`{told.in_placeholder}`")
    if told.url:
        ways.append(f"`{told.field}` of `{told.method} {_shown(told.url)}`")
    return ", else ".join(ways)


def events_of(entry: Entry) -> str | None:
    """How its webhooks are verified, and what of them ends a grant."""
    told = entry.webhook
    if told is None:
        return None
    text = SIGNED[told.signature.scheme]
    if told.signature.timestamp is not None:
        text += f", at most {told.signature.timestamp.tolerance_s} s old"
    text += ". "
    if not told.event.accounts:
        text += "They name no account: the settings say whose they are. "
    elif entry.identity is not None and entry.identity.kind not in told.event.accounts:
        text += f"They name the {next(iter(told.event.accounts))}, so every connection of it has its share. "
    elif entry.identity is not None:
        wide = [kind for kind in told.event.accounts if kind != entry.identity.kind]
        if wide:
            text += f"Those that name no {entry.identity.kind} reach every connection of the {wide[0]}. "
    if told.deauthorizations:
        signed = told.signature.scheme not in HINTED and all(is_signed(told, each) for each in told.deauthorizations)
        names = ", ".join(f"`{value}`" for each in told.deauthorizations for value in list(each.when.values())[:1])
        names = "any of them" if told.signature.scheme == "signed_request" else names
        text += f"The end of a grant is told by {names}" + ("." if signed else ", which only makes a check due.")
    else:
        text += "None says that a grant has ended."
    return text


SIGNED: Final = {
    "hmac": "by an HMAC",
    "ed25519": "by Ed25519 under a public key of the settings",
    "ecdsa_by_key_id": "by ECDSA under a public key of the settings",
    "rsa_certificate": "by RSA under a certificate of the settings",
    "jws": "a token, by the provider's published keys",
    "signed_request": "by an HMAC within a form field",
    "secret": "by a secret that they carry",
    "path": "not signed: by a secret in their address",
}


def _allowed(placeholder: object) -> str:
    values, pattern = getattr(placeholder, "values", []), getattr(placeholder, "pattern", None)
    return f"one of {', '.join(values)}" if values else f"matching {pattern}"


def _plain(text: str) -> str:
    return text.replace("`", "")


# --- the page ------------------------------------------------------------------------------------------------------

HEAD: Final = """# Providers

What a disconnect really does at each provider, as far as anybody has read it. Made from the catalogue by
`python -m quitclaim.providers page`; corrections belong into
`layers/quitclaim/python/quitclaim/providers/catalogue/`, one file a provider.

Every fact has a source and a date in its file. A key that nobody has read is `unknown`, which is never read as no:

| unknown | what happens |
| --- | --- |
"""
OWN: Final = """
What a file lists under `remembered` was written from memory because something must stand there (how the client
authenticates, an account's address): if it is wrong, connecting or refreshing fails and is seen to. Nothing that a
confirmation, a reach or a lifetime rests on may be remembered.

## A provider of your own

Write a file as those of the catalogue are, with `{id}.yaml` for a name; `schema.py` beside it is the list of fields.

- `python -m quitclaim.providers check mine.yaml` says file, line, field and fix of all that is wrong, or what holds,
  what is unknown and what that means.
- `python -m quitclaim.providers compare mine.json` holds the compiled entry against what the server says of itself (RFC
  8414), below its issuer or `--from` an address or file. Nothing at run time reads such a document.
- `python -m quitclaim.providers.compile mine.yaml OUT` writes the JSON that the functions read. Put it beside the
  shipped ones in `providers/catalogue/compiled/` before `make build`. On the local stack `--catalogue mine.yaml` does
  both; `QUITCLAIM_CATALOGUE` names further folders there, and is refused unless the public address is loopback.
- A revocation is one request: a `shape` fills in what its providers have in common, and `method`, `url`, `headers`,
  `client_auth`, `body` and `fields` say the rest. `{token}` stands where the token goes; `{account_id}`,
  `{client_id}`, `{client_secret}` and the file's own placeholders where theirs go.
- A `webhook` block says how events are signed (`signature`), which handshakes there are, where an event says what
  (`event`), and which say that a grant has ended (`deauthorizations`) or what became of a source (`sources`);
  `webhook_schema.py` lists its fields. Of several kinds of `accounts` the first that an event names decides, of those
  for which it says what `accounts_when` wants: name the user before the workspace.
- A broker has a `broker` block in place of `authorize`, `token` and `refresh`: `find` and `make` name an account by
  `{reference}` (our name of it), `link` sends the user to the broker's pages and `{back}`, `sign_in` makes a token for
  an app's SDK. `{account_id}` is the account, `{source}` what is linked behind it; its revocation takes it as
  `{token}`.
- A placeholder has one source (`start`, `callback`, `token_response`, `account`, `client`) and a closed list or a
  pattern that a value must match as a whole. A host that a value alone decides needs a written domain at its end.

## The providers

"""


def page() -> str:
    """docs/providers.md."""
    entries = sorted((read_entry(path) for path in CATALOGUE.glob("*.yaml")), key=lambda entry: entry.id)
    rows = "".join(f"| `{key}` | {text} |\n" for key, text in UNKNOWN.items())
    overview = ["| provider | disconnect ends | revoked if | account |\n| --- | --- | --- | --- |\n"]
    overview += [
        f"| [{entry.name}](#{entry.id}) | {_ends(entry)} | {success_of(entry)} | {identity_of(entry)} |\n"
        for entry in entries
    ]
    return HEAD + rows + OWN + "".join(overview) + "".join("\n" + part for part in map(_section, entries))


def _ends(entry: Entry) -> str:
    told = filled_revocation(entry.revocation)
    if entry.status == "shut_down" or told.shape in ("none", "unknown"):
        return "nothing by a call"
    return REACHES[told.reach or "unknown"]


def _section(entry: Entry) -> str:
    told: Revocation = filled_revocation(entry.revocation)
    lines = [f"### {entry.id}", "", f"{entry.name}, as of {entry.checked_on}.", ""]
    if entry.status != "active":
        lines[2] = f"{entry.name}, {STATUS[entry.status]} {entry.ends_on}; as of {entry.checked_on}."
    lines.append(f"- **Disconnect.** {disconnect_of(entry)}")
    lines.append(f"- **Revoked if** {success_of(entry)}.")
    lines.append(f"- **Refresh:** {refresh_of(entry)}.")
    lines.append(f"- **Account:** {identity_of(entry)}.")
    events = events_of(entry)
    if events is not None:
        lines.append(
            f"- **Events** are verified {events}" if not events.startswith(("a ", "not")) else f"- **Events:** {events}"
        )
    if told.manual_page and told.manual_page != "unknown":
        read = ", from memory" if "revocation.manual_page" in entry.remembered else ""
        lines.append(f"- **By hand:** <{told.manual_page}>{read}")
    lines += [f"- Also: {_sentence(each)}" for each in told.side_effects]
    lines += [f"- {_sentence(each)}" for each in entry.notes]
    found = unknowns(entry)
    if found:
        lines.append(f"- Unknown: {', '.join(f'`{key}`' for key in found)}")
    rest = [each for each in entry.remembered if each != "revocation.manual_page"]
    if rest:
        lines.append(f"- Remembered: {', '.join(f'`{each}`' for each in rest)}")
    lines.append(f"- Sources: {'; '.join(_sources(entry))}")
    return "\n".join(lines) + "\n"


def _sources(entry: Entry) -> Iterator[str]:
    for source in entry.sources:
        if isinstance(source, Source):
            by = "the provider's " if source.by == "provider" else ""
            yield f"{_escaped(source.text)} ({by}{', '.join(source.blocks)})"
        else:
            yield _escaped(source)


def _sentence(text: str) -> str:
    return _escaped(text if text.endswith((".", ")")) else f"{text}.")


def _escaped(text: str) -> str:
    """Nothing in a note is markup."""
    for sign in ("\\", "*", "_", "<", "[", "|"):
        text = text.replace(sign, f"\\{sign}")
    return text
