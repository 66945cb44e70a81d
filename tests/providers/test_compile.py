"""Catalogue files: what is refused, in which words, and what is compiled."""

from typing import Any

import pytest

from quitclaim.providers.compile import (
    CATALOGUE,
    CatalogueError,
    compile_catalogue,
    compile_file,
    differences,
    main,
    read_entry,
)
from quitclaim.providers.spec import Catalogue
from tests.providers.specs import REMOVED, written


def faults(folder, changes, **options):
    """What is said of the changed entry, without the file and line."""
    with pytest.raises(CatalogueError) as error:
        compile_file(written(folder, changes), folder / "out", **options)
    assert not (folder / "out").exists()
    return [f"{fault.field} {fault.reason}" for fault in error.value.faults]


NONE_SHAPE = {
    "revocation": {"shape": "none", "manual_page": "https://acme.example.com/apps"},
}


HOOK: dict[str, Any] = {"signature": {"scheme": "hmac", "headers": ["x-acme-signature"]}}
BESIDE = {"at": "header:x-acme-timestamp", "unit": "s"}


SOURCED: dict[str, Any] = HOOK | {"event": {"source": "source.slug"}}
LINKED = {"says": "connected", "when": {"kind": "source.created"}}


def signed(text: str, **more: Any) -> dict[str, Any]:
    """A webhook block whose signature covers that."""
    return {"signature": {**HOOK["signature"], "signed": text, **more}}


TEAM = {"team": {"field": "team.id"}}


def naming(**accounts: str) -> dict[str, Any]:
    """A webhook block whose events name whom they concern so, by kind."""
    return {**HOOK, "event": {"accounts": {kind: [path] for kind, path in accounts.items()}}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token.url": REMOVED}, "token.url is missing"),
        ({"tokens": {}}, "tokens is no field of the catalogue"),
        ({"token.urll": "x"}, "token.urll is no field of the catalogue"),
        ({"id": "Acme"}, "id is 'Acme'; it must match"),
        ({"id": "other"}, "id is 'other', and the file is acme.yaml"),
        ({"status": "closed"}, "status is 'closed'; write one of 'active', 'sunset' or 'shut_down'"),
        ({"sources": []}, "sources does not hold"),
        ({"sources": REMOVED}, "sources is missing"),
        ({"checked_on": "today"}, "checked_on is 'today'; it must match"),
        ({"authorize.pkce": "plain"}, "authorize.pkce is 'plain'; write one of"),
        ({"authorize.pkce": REMOVED}, "authorize.pkce is missing"),
        ({"authorize.url": "http://acme.example.com/a"}, "authorize.url is not https"),
        ({"authorize.url": "https://acme.example.com/a?x=y"}, "authorize.url has a query"),
        ({"authorize.params": {"state": "x"}}, "authorize.params.state is set by Quitclaim itself"),
        ({"authorize.params": {"code_challenge_method": "plain"}}, "authorize.params.code_challenge_method is set by"),
        ({"authorize.params": {"prompt": 1}}, "authorize.params.prompt does not hold"),
        ({"authorize.issuer_announced": "yes"}, "authorize.issuer is needed where iss is announced"),
        ({"token.url": "https://10.0.0.1/token"}, "token.url leads to 10.0.0.1"),
        ({"token.url": "https://metadata.google.internal/t"}, "token.url leads to metadata.google.internal"),
        ({"token.url": "https://{shop}.example.com/t"}, "token.url holds {shop}, which nothing fills"),
        ({"token.client_auth": "jwt"}, "token.client_auth is 'jwt'; write one of"),
        ({"token.client_auth": "private_key_jwt"}, "revocation.client_auth needs a shared secret where the client has"),
        ({"revocation.client_auth": "private_key_jwt"}, "revocation.client_auth needs a key where the client has a"),
        ({"token.assertion_audience": "issuer"}, "token.assertion_audience is the issuer of who takes private_key_jwt"),
        ({"authorize.par": "yes"}, "authorize.par_url and par: yes belong together"),
        ({"token.default_lifetime_s": REMOVED}, "token.default_lifetime_s is missing"),
        ({"token.default_lifetime_s": 0}, "token.default_lifetime_s does not hold"),
        ({"token.default_lifetime_s": "soon"}, "token.default_lifetime_s"),
        ({"token.response.access_token": "a b"}, "token.response.access_token is 'a b'; it must match"),
        ({"refresh.url": "https://localhost/x"}, "refresh.url leads to localhost"),
        ({"refresh": {"mode": "none", "rotates": "yes"}}, "refresh.mode is none, yet a refresh is described"),
        ({"refresh": {"mode": "none", "url": "https://acme.example.com/r"}}, "refresh.mode is none"),
        ({"refresh.rotates": "no"}, "refresh.old_token_after_rotation says what rotation does where nothing rotates"),
        ({"refresh.rotates": True}, "refresh.rotates is True; write one of"),
        ({"revocation.shape": "mail"}, "revocation.shape is 'mail'; write one of"),
        ({"revocation.shape": "token_in_path"}, "revocation.fields name no {token}"),
        ({"revocation.url": "https://192.168.1.1/r"}, "revocation.url leads to 192.168.1.1"),
        ({"revocation.url": REMOVED}, "revocation.url is missing"),
        ({"revocation.takes": REMOVED}, "revocation.takes is missing"),
        ({"revocation.reach": REMOVED}, "revocation.reach is missing"),
        ({"revocation.client_auth": REMOVED}, "revocation.client_auth is missing"),
        ({"revocation.success": REMOVED}, "revocation.success is missing"),
        ({"revocation.success.status": []}, "revocation.success.status does not hold"),
        ({"revocation.success.status": ["200"]}, "revocation.success.status.0 does not hold"),
        ({"revocation.success.status": [400]}, "revocation.success.status counts a refusal as success"),
        ({"revocation.success.status": [200, 202]}, "revocation.success.status counts 202 as success"),
        ({"revocation.success.body": {"path": "ok"}}, "revocation.success.body.equals is missing"),
        ({"revocation.already_gone": {"status": [200]}}, "revocation.already_gone would take a failed success"),
        ({"revocation.already_gone": {"errors": ["x"]}}, "revocation.already_gone.status is missing"),
        ({"revocation.manual_page": "ftp://x"}, "revocation.manual_page is not https"),
        ({"revocation": {"shape": "none"}}, "revocation.manual_page is the owner's only way out"),
        (
            {"revocation.shape": "none", "revocation.manual_page": "https://acme.example.com/apps"},
            "revocation.success describes a call where shape is none",
        ),
        ({"revocation.reach": "authorization", "identity": REMOVED}, "revocation.reach is authorization, and nothing"),
        ({"revocation.reach": "account", "identity": REMOVED}, "revocation.reach is account, and nothing"),
        ({"revocation.reach": "unknown", "identity": REMOVED}, "revocation.reach is unknown, and nothing"),
        ({"identity": {"url": "https://acme.example.com/me"}}, "identity has only one of url and field"),
        ({"identity": {}}, "identity says no way to read the account"),
        ({"identity.url": "https://[::1]/me"}, "identity.url leads to ::1"),
        ({"remembered": ["revocation.success"]}, "remembered.0 is revocation.success, which must not rest on memory"),
        ({"remembered": ["revocation.already_gone"]}, "remembered.0 is revocation.already_gone, which must not"),
        ({"remembered": ["revocation.reach"]}, "remembered.0 is revocation.reach, which must not rest on memory"),
        ({"remembered": ["revocation"]}, "remembered.0 is revocation, which must not rest on memory"),
        ({"remembered": ["webhook.deauthorizations"]}, "remembered.0 is webhook.deauthorizations, which must not rest"),
        ({"webhook": {}}, "webhook.signature is missing"),
        ({"webhook": HOOK | {"signature": {"scheme": "hmac"}}}, "webhook.signature.headers are missing; hmac comes"),
        ({"webhook": signed("{body}{nonce}")}, "webhook.signature.signed may name"),
        ({"webhook": signed("v0")}, "webhook.signature.signed leaves the body out"),
        ({"webhook": signed("{timestamp}{body}")}, "webhook.signature.timestamp and {timestamp} in what is signed"),
        ({"webhook": signed("{body}", timestamp=BESIDE)}, "webhook.signature.timestamp and {timestamp} in what is"),
        ({"webhook": signed("{id}{body}")}, "webhook.signature.id_header and {id} in what is signed"),
        ({"webhook": HOOK | {"event": {"id": ["header:x-id"]}}}, "webhook.event.id names header:x-id, which nobody"),
        ({"webhook": {"signature": {"scheme": "path"}}}, "webhook.event.is_level must be true"),
        ({"webhook": {"signature": {"scheme": "secret"}}}, "webhook.signature.member is missing"),
        ({"webhook": {"signature": {"scheme": "jws", "member": "payload"}}}, "webhook.signature.jwks_url and issuer"),
        ({"webhook": HOOK | {"event": {"form": "claims"}}}, "webhook.event.form is claims, which only a signed token"),
        (
            {"webhook": naming(team="team")},
            "webhook.event.accounts.team is no kind of account that the identity stores",
        ),
        (
            {"webhook": naming(user="u"), "identity": REMOVED, "revocation.reach": "token"},
            "webhook.event.accounts.user",
        ),
        ({"webhook": naming(user="u"), "identity.kind": REMOVED}, "webhook.event.accounts.user is no kind of account"),
        (
            {"webhook": HOOK | {"deauthorizations": [{"when": {"a": "b"}, "accounts": {"shop": ["shop"]}}]}},
            "webhook.deauthorizations.0.accounts.shop is no kind of account",
        ),
        ({"webhook": naming(user="u"), "identity.also": TEAM}, "identity.also.team is a name that no event uses"),
        (
            {"webhook": naming(team="t"), "identity.also": {"team": {"in_token_response": "team.id"}}},
            "identity.also.team.field and identity.url belong together",
        ),
        (
            {"webhook": naming(team="t"), "identity.also": TEAM, "identity.in_token_response": "user"},
            "identity.also.team.in_token_response and the account's own belong together",
        ),
        ({"webhook": naming(user="u"), "identity.also": {"user": {"field": "x"}}}, "identity.also.user is the kind of"),
        (
            {"webhook": naming(team="t") | {"unready": "retry"}, "identity.also": TEAM},
            "webhook.event.accounts.team cannot be looked up before an event is accepted",
        ),
        ({"webhook": HOOK | {"handshakes": [{"kind": "challenge"}]}}, "webhook.handshakes.0.signed must be true"),
        ({"webhook": HOOK | {"handshakes": [{"kind": "ping"}]}}, "webhook.handshakes.0.when is missing"),
        ({"webhook": HOOK | {"deauthorizations": [{"when": {}}]}}, "webhook.deauthorizations.0.when does not hold"),
        (
            {"webhook": HOOK | {"deauthorizations": [{"when": {"a": "b"}, "client": "header:x-client"}]}},
            "webhook.deauthorizations.0.client is a header, which nobody signs",
        ),
        (
            {"webhook": HOOK | {"event": {"accounts_when": {"user": {"bot": "false"}}}}},
            "webhook.event.accounts_when.user is no kind of accounts",
        ),
        ({"webhook": HOOK | {"sources": [LINKED]}}, "webhook.event.source is missing"),
        ({"webhook": SOURCED | {"sources": [{"says": "paused", "when": {"kind": "x"}}]}}, "webhook.sources.0.says is"),
        ({"webhook": SOURCED | {"sources": [{"says": "failed", "when": {}}]}}, "webhook.sources.0.when does not hold"),
        (
            {"webhook": SOURCED | {"sources": [{"says": "failed", "when": {"header:x-topic": "x"}}]}},
            "webhook.sources.0.when rests on a header",
        ),
        (
            {"webhook": SOURCED | {"unready": "retry", "sources": [{"says": "failed", "when": {"kind": "x"}}]}},
            "webhook.sources names no word for connected",
        ),
    ],
)
def test_a_file_that_does_not_hold_is_refused(tmp_path, changes, said):
    """The error names the field, the reason and the way out; nothing is written."""
    assert any(fault.startswith(said) for fault in faults(tmp_path, changes)), faults(tmp_path, changes)


SHOP = {"from": "start", "pattern": r"[a-z0-9-]{1,60}\.example\.com"}


def with_shop(told: dict[str, object], url: str = "https://{shop}/token") -> dict[str, object]:
    """Changes that put a placeholder into the token endpoint."""
    return {"placeholders": {"shop": told}, "token.url": url}


@pytest.mark.rule("S-8")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (with_shop({"from": "start"}), "placeholders.shop has not exactly one of pattern"),
        (
            with_shop(SHOP | {"values": ["a.example.com"]}),
            "placeholders.shop has not exactly one of pattern",
        ),
        (with_shop(SHOP | {"default": "x"}), "placeholders.shop.default is not a value that the placeholder allows"),
        (with_shop({"from": "nowhere", "pattern": "a"}), "placeholders.shop.from is 'nowhere'; write one of"),
        (
            with_shop({"from": "token_response", "pattern": "a"}),
            "token.url holds {shop}, which comes from",
        ),
        (with_shop({"from": "account", "pattern": "a"}), "token.url holds {shop}, which comes from account"),
        (with_shop(SHOP | {"from": "callback", "echo": "shop"}), "placeholders.shop.echo compares with what the start"),
        (with_shop({"from": "start", "pattern": "[a-z]{1,9}"}), "token.url has a host that {shop} alone decides"),
        (with_shop({"from": "start", "pattern": r"[a-z]{1,9}\.com"}), "token.url has a host that {shop} alone decides"),
        (
            with_shop({"from": "start", "pattern": r"[a-z]{1,9}|x\.example\.com"}),
            "token.url has a host that {shop} alone decides",
        ),
        (
            with_shop({"from": "start", "pattern": r"[a-z.]{1,9}"}, "https://{shop}.example.com/t"),
            "token.url has {shop} before a domain, and its pattern takes a dot",
        ),
        (with_shop({"from": "start", "values": ["10.0.0.1"]}), "token.url leads to 10.0.0.1"),
        (with_shop({"from": "start", "values": ["localhost"]}), "token.url leads to localhost"),
        (with_shop({"from": "start", "values": ["a/b"]}), "placeholders.shop.values.0 is 'a/b'; it must match"),
        ({"placeholders": {"shop": SHOP}}, "placeholders.shop is used nowhere"),
        ({"placeholders": {"token": SHOP}}, "placeholders.token is filled by the request itself"),
        ({"placeholders": {"Shop": SHOP}}, "placeholders.Shop"),
        ({"authorize.url": "https://{token}.example.com/a"}, "authorize.url holds {token}, which is not at hand there"),
        ({"revocation.url": "https://{token}.example.com/r"}, "revocation.url would put a token into a host name"),
        ({"revocation.url": "https://a.example.com/{client_secret}"}, "revocation.url would put the client's secret"),
        ({"identity.url": "https://a.example.com/{account_id}"}, "identity.url holds {account_id}, which an identity"),
        ({"revocation.headers": {"Host": "x"}}, "revocation.headers.Host is set by Quitclaim itself"),
        ({"revocation.headers": {"X-A": "a\nb"}}, "revocation.headers.X-A"),
        ({"token.params": {"grant_type": "x"}}, "token.params.grant_type is set by Quitclaim itself"),
        ({"refresh.params": {"refresh_token": "x"}}, "refresh.params.refresh_token is set by Quitclaim itself"),
        ({"refresh.method": "GET"}, "refresh.method would put a refresh token into a URL"),
        ({"revocation.fields": {"a": "b"}}, "revocation.fields name no {token}"),
        (
            {"revocation.takes": "account", "revocation.fields": {"a": "{token}"}},
            "revocation.fields name no {acc",
        ),
        ({"revocation.adapter": "withings"}, "revocation.adapter and shape account_id_keyed_signed belong together"),
        ({"revocation.body": "none"}, "revocation.fields have no body to stand in"),
        (
            {"revocation.body": "query", "revocation.client_auth": "post"},
            "revocation.client_auth has no body",
        ),
        ({"revocation.ambiguous": {"status": [200]}}, "revocation.ambiguous would take a failed success for ambiguous"),
        (
            {"revocation.success": "unknown", "revocation.already_gone": "same_as_success"},
            "revocation.already_gone is the same as what is not known",
        ),
        ({"identity.in_id_token": "sub"}, "identity.in_id_token needs a checked ID token"),
        ({"identity.in_placeholder": "shop"}, "identity.in_placeholder must name a placeholder"),
        ({"status": "sunset"}, "ends_on is missing"),
        ({"ends_on": "2027-01-01"}, "ends_on is the end of a provider whose status is active"),
        ({"remembered": ["revocation.success"]}, "remembered.0 is revocation.success, which must not rest on memory"),
        ({"remembered": ["oidc.issuer"]}, "remembered.0 is oidc.issuer, which the file does not hold"),
        ({"webhooks": {"available": "yes", "scheme": "hmac_body_hex"}}, "webhooks.headers are missing"),
        (
            {"webhooks": {"available": "no", "scheme": "hmac_body_hex", "headers": "unknown"}},
            "webhooks.scheme",
        ),
        (
            {"webhooks": {"available": "yes", "scheme": "none", "signed": "{secret}{body}"}},
            "webhooks.signed may name {body}",
        ),
    ],
)
def test_what_could_lead_astray_does_not_load(tmp_path, changes, said):
    """Hosts, headers, parameters and predicates: refused by field, with the way out."""
    found = faults(tmp_path, changes)

    assert any(fault.startswith(said) for fault in found), found


@pytest.mark.rule("S-8")
@pytest.mark.parametrize(
    "pattern",
    [
        ".+",
        ".*",
        "[^/]+",
        r"\S+",
        r"\w+",
        r"[\w-]{1,9}",
        "a+",
        "(a|b)*",
        "(?:a{1,9}){1,9}",
        "[a-z/]{1,9}",
        "[a-z@]{1,9}",
        "[a-z%]{1,9}",
        "[!-~]{1,9}",
        "a b",
        "^a$",
        "(?i:a)",
        "(?=a)a",
        "a{1,}",
        "[a-Z]",
        "(",
    ],
)
def test_S_8_a_pattern_takes_nothing_that_ends_a_host_or_a_segment(tmp_path, pattern):
    """And none is slow: no unbounded repetition, no repeated group."""
    changes = with_shop({"from": "start", "pattern": pattern}, "https://a.example.com/{shop}")

    assert any("placeholders.shop.pattern" in fault for fault in faults(tmp_path, changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        with_shop(SHOP),
        with_shop(SHOP | {"echo": "shop"}),
        with_shop({"from": "start", "pattern": "[a-z]{1,9}"}, "https://{shop}.example.com/t"),
        with_shop({"from": "client", "pattern": "[a-z]{1,9}", "default": "common"}, "https://a.example.com/{shop}/t"),
        {"revocation.success": "unknown", "revocation.already_gone": "unknown"},
        {"revocation": {"shape": "unknown"}},
        {"revocation.takes": "unknown"},
        {"status": "shut_down", "ends_on": "2026-11-02"},
        {"remembered": ["token.client_auth", "identity"]},
        {"revocation.reach": "family", "identity": REMOVED},
        {"revocation.reach": "token", "identity": REMOVED},
        {"revocation.reach": "account"},
        {"identity": {"in_token_response": "user.0.id"}, "revocation.reach": "unknown"},
        {**NONE_SHAPE, "identity": REMOVED},
        {"revocation.success.body": {"path": "revoked", "equals": True}},
        {"revocation.success.body": "empty"},
        {"revocation.already_gone": "same_as_success"},
        {"revocation.already_gone": {"status": [200], "errors": ["token_revoked"]}},
        {"token.default_lifetime_s": "never"},
        {"refresh": {"mode": "none"}},
        {"authorize.issuer": "https://acme.example.com", "authorize.issuer_announced": "yes"},
        {"webhook": HOOK},
        {"webhook": HOOK | {"event": {"id": ["header:x-id", "digest"]}}},
        {
            "webhook": signed("{id}.{timestamp}.{body}", timestamp=BESIDE, id_header="x-id")
            | {"event": {"id": ["header:x-id"]}}
        },
        {"webhook": {"signature": {"scheme": "path"}, "event": {"is_level": True}}},
        {"webhook": SOURCED},
        {"webhook": SOURCED | {"unready": "retry", "sources": [LINKED]}},
    ],
)
def test_a_file_that_holds_is_compiled(tmp_path, changes):
    """And read again by the functions."""
    compile_file(written(tmp_path, changes), tmp_path / "out")

    assert Catalogue([tmp_path / "out"]).get("acme").name == "Acme"


def test_every_fault_is_told_at_once(tmp_path):
    """Whoever corrects a file corrects it once."""
    changes = {"token.url": "http://x.example.com/", "revocation.success.status": [500], "identity": {}}

    assert len(faults(tmp_path, changes)) == 3


def test_an_error_names_file_and_line(tmp_path):
    """Where to look."""
    path = tmp_path / "acme.yaml"
    path.write_text(written(tmp_path).read_text().replace("pkce: required", "pkce: plain"))
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "plain" in text)

    with pytest.raises(CatalogueError, match=rf"^acme\.yaml:{line}: authorize\.pkce is 'plain'"):
        compile_file(path, tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id: a\nid: b\n", "acme.yaml:2: id stands twice"),
        ("a: [1\n", "the file is not YAML"),
        ("a: !!python/object:os.system x\n", "the file is not YAML"),
        ("", "the file does not hold"),
        ("- a\n", "the file does not hold"),
    ],
)
def test_what_is_no_plain_yaml_is_refused(tmp_path, text, said):
    """Duplicate keys, broken text, tags that build objects, no mapping."""
    path = tmp_path / "acme.yaml"
    path.write_text(text)

    with pytest.raises(CatalogueError) as error:
        compile_file(path, tmp_path / "out")

    assert said in str(error.value)


def test_yes_and_no_are_words(tmp_path):
    """YAML's old idea that `no` is false does not reach the catalogue, and a date stays text."""
    path = written(tmp_path, {"refresh": {"mode": "refresh_token"}})
    path.write_text(path.read_text().replace("mode: refresh_token", "mode: refresh_token\n  rotates: no"))

    compile_file(path, tmp_path / "out")

    assert Catalogue([tmp_path / "out"]).get("acme").refresh.rotates == "no"


def test_variables_fill_a_local_entry(tmp_path):
    """The local stack names its base address; http on this machine needs the permission."""
    changes = {
        "authorize.url": "{base}/authorize",
        "token.url": "{base}/token",
        "revocation.url": "{base}/revoke",
        "identity.url": "{base}/me",
    }
    variables = {"base": "http://127.0.0.1:8123"}

    assert any("nothing fills" in fault for fault in faults(tmp_path, changes, allow_loopback=True))
    assert any("not https" in fault for fault in faults(tmp_path, changes, variables=variables))
    compile_file(written(tmp_path, changes), tmp_path / "out", variables=variables, allow_loopback=True)

    spec = Catalogue([tmp_path / "out"]).get("acme")
    assert spec.token.url == "http://127.0.0.1:8123/token"
    assert spec.allow_loopback


def test_the_compiled_catalogue_is_what_its_files_compile_to():
    """The JSON that is checked in is a fresh compile of the YAML beside it."""
    assert differences() == []


def test_no_entry_that_ships_leads_to_this_machine():
    """Loopback is for the local stack alone."""
    catalogue = Catalogue()

    assert catalogue.ids() == sorted(path.stem for path in CATALOGUE.glob("*.yaml"))
    assert not any(catalogue.get(each).allow_loopback for each in catalogue.ids())


def test_at_least_fifty_providers_ship():
    """Each with a date, and a source for every block that says anything, which the schema asks for."""
    entries = [read_entry(path) for path in CATALOGUE.glob("*.yaml")]

    assert len(entries) >= 50
    assert all(entry.checked_on >= "2026-11-30" for entry in entries)


@pytest.mark.parametrize("block", ["oauth", "refresh", "revocation", "identity", "webhooks"])
def test_a_block_without_a_source_is_refused(tmp_path, block):
    """What nobody can look up again is unknown."""
    others = [each for each in ("oauth", "refresh", "revocation", "identity", "webhooks") if each != block]
    changes = {
        "sources": [{"text": "https://acme.example.com/docs", "for": others}],
        "webhooks": {"available": "yes", "scheme": "none"},
    }

    assert faults(tmp_path, changes) == [
        f"sources name none for {block}; say where it was read, or write unknown",
    ]


def test_a_catalogue_is_compiled_as_a_whole(tmp_path, capsys):
    """The command writes, removes what no file stands behind, finds differences, and writes nothing on a fault."""
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    (out / "gone.json").write_text("{}")
    written(source)

    assert main([str(source), str(out), "--check"]) == 1
    assert "acme.json is not what" in capsys.readouterr().err
    assert main([str(source), str(out)]) == 0
    assert [path.name for path in out.iterdir()] == ["acme.json"]
    assert main([str(source), str(out), "--check"]) == 0
    assert main([str(source / "acme.yaml"), str(out), "--check"]) == 0

    (source / "other.yaml").write_text("id: other\n")
    assert main([str(source), str(out)]) == 1
    assert "other.yaml:1: " in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["acme.json"]
    with pytest.raises(CatalogueError):
        compile_catalogue(source, out)
