"""A hook as the app's team wrote it down."""

import pytest

from quitclaim.domain.hooks import Hook, HookFaultsError, HookKind, hook_id, read_hook

ARN = "arn:aws:lambda:eu-central-1:111122223333:function:purge"
REF = "ssm:/quitclaim-hooks/quitclaim/purge"


@pytest.mark.parametrize(
    ("config", "hook"),
    [
        ({"function": ARN}, Hook(HookKind.PURGE, function=ARN)),
        ({"function": f"{ARN}:live"}, Hook(HookKind.PURGE, function=f"{ARN}:live")),
        (
            {"url": "https://app.example/hooks", "secrets": [REF]},
            Hook(HookKind.PURGE, "https://app.example/hooks", (REF,)),
        ),
        (
            {"url": "https://app.example/hooks", "secrets": [REF, f"{REF}-new"]},
            Hook(HookKind.PURGE, "https://app.example/hooks", (REF, f"{REF}-new")),
        ),
    ],
)
def test_a_hook_is_a_function_or_a_signed_url(config, hook):
    """One or two secrets with a URL, none with a function."""
    assert read_hook("purge", config) == hook


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"url": "https://app.example/hooks", "function": ARN},
        {"url": "https://app.example/hooks"},
        {"url": "https://app.example/hooks", "secrets": []},
        {"url": "https://app.example/hooks", "secrets": [REF, REF, REF]},
        {"url": "https://app.example/hooks", "secrets": ["whsec_c2VjcmV0LWNhbmFyeQ=="]},
        {"url": "https://app.example/hooks", "secrets": REF},
        {"url": "https://app.example/hooks", "secrets": [1]},
        {"url": 7, "secrets": [REF]},
        {"function": "purge"},
        {"function": 7},
        {"function": ARN, "secrets": [REF]},
        {"function": ARN, "timeout": 3},
    ],
)
def test_what_does_not_hold_is_refused_without_its_values(config):
    """Every fault in a sentence; a secret that was written where its name belongs is not repeated."""
    with pytest.raises(HookFaultsError) as refused:
        read_hook("purge", config)

    assert refused.value.faults
    assert "whsec_" not in str(refused.value)


def test_a_hook_that_does_not_exist_is_told():
    """With those that do."""
    with pytest.raises(HookFaultsError, match=r"purge, webhook\.accepted"):
        read_hook("compensate", {"function": ARN})


def test_an_id_is_of_its_kind_and_of_what_it_is_about():
    """The same every time, and no other's."""
    assert hook_id(HookKind.PURGE, "t", "o", "c#1") == hook_id(HookKind.PURGE, "t", "o", "c#1")
    others = {hook_id(HookKind.PURGE, "t", "o", "c#2"), hook_id(HookKind.WEBHOOK_ACCEPTED, "t", "o", "c#1")}
    assert hook_id(HookKind.PURGE, "t", "o", "c#1") not in others
