"""
What a function is told by its environment: one frozen dataclass per function, read once, every fault reported together.

Names of variables are those of template.yaml; a test holds the two to each other.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from quitclaim.domain.return_to import origin_of


class SettingsError(Exception):
    """The environment does not hold what the function needs; *faults* is all that is wrong with it."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("settings: " + "; ".join(faults))
        self.faults = tuple(faults)


def _env(name: str, default: Any = MISSING) -> Any:
    return field(metadata={"env": name}, **({} if default is MISSING else {"default": default}))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of every function. *clock_file* and *catalogue* exist on the local stack only."""

    table: str = _env("QUITCLAIM_TABLE")
    ring_key: str = _env("QUITCLAIM_RING_KEY")
    config_path: str = _env("QUITCLAIM_CONFIG_PATH")
    clock_file: str = _env("QUITCLAIM_CLOCK_FILE", "")
    catalogue: str = _env("QUITCLAIM_CATALOGUE", "")

    @property
    def catalogue_dirs(self) -> tuple[Path, ...]:
        """Folders of compiled provider entries besides the shipped ones; they come first."""
        return tuple(Path(part) for part in self.catalogue.split(":") if part)


@dataclass(frozen=True, kw_only=True)
class AppApiSettings(Settings):
    """Of `app_api`."""

    return_origins: str = _env("QUITCLAIM_RETURN_ORIGINS")
    sweep_function: str = _env("QUITCLAIM_SWEEP_FUNCTION")


@dataclass(frozen=True, kw_only=True)
class ConnectSettings(Settings):
    """Of `connect`."""

    return_origins: str = _env("QUITCLAIM_RETURN_ORIGINS")
    sweep_function: str = _env("QUITCLAIM_SWEEP_FUNCTION")
    delivery_queue: str = _env("QUITCLAIM_DELIVERY_QUEUE")


@dataclass(frozen=True, kw_only=True)
class AccessTokenSettings(Settings):
    """Of `access_token`."""

    sweep_function: str = _env("QUITCLAIM_SWEEP_FUNCTION")


@dataclass(frozen=True, kw_only=True)
class RevokeSweepSettings(Settings):
    """Of `revoke_sweep`."""


@dataclass(frozen=True, kw_only=True)
class ReconcileSettings(Settings):
    """Of `reconcile`."""

    sweep_function: str = _env("QUITCLAIM_SWEEP_FUNCTION")
    access_token_function: str = _env("QUITCLAIM_ACCESS_TOKEN_FUNCTION")
    event_bus: str = _env("QUITCLAIM_EVENT_BUS")
    delivery_queue: str = _env("QUITCLAIM_DELIVERY_QUEUE")


@dataclass(frozen=True, kw_only=True)
class PublishSettings(Settings):
    """Of `publish`."""

    event_bus: str = _env("QUITCLAIM_EVENT_BUS")


@dataclass(frozen=True, kw_only=True)
class WebhookSettings(Settings):
    """Of `webhook`."""

    delivery_queue: str = _env("QUITCLAIM_DELIVERY_QUEUE")


@dataclass(frozen=True, kw_only=True)
class DeliverSettings(Settings):
    """Of `deliver`."""

    sweep_function: str = _env("QUITCLAIM_SWEEP_FUNCTION")
    access_token_function: str = _env("QUITCLAIM_ACCESS_TOKEN_FUNCTION")
    delivery_queue: str = _env("QUITCLAIM_DELIVERY_QUEUE")


@dataclass(frozen=True, kw_only=True)
class MaintainSettings(Settings):
    """Of `maintain`."""

    access_token_function: str = _env("QUITCLAIM_ACCESS_TOKEN_FUNCTION")


MAY_BE_EMPTY: Final = frozenset({"QUITCLAIM_RETURN_ORIGINS", "QUITCLAIM_CLOCK_FILE", "QUITCLAIM_CATALOGUE"})


def read[T: Settings](kind: type[T], environ: Mapping[str, str]) -> T:
    """The settings that *environ* holds. Raises `SettingsError` with every fault."""
    found: dict[str, str] = {}
    faults: list[str] = []
    for each in fields(kind):
        name = each.metadata["env"]
        value = environ.get(name)
        if value is None and each.default is not MISSING:
            continue
        if value is None or (not value.strip() and name not in MAY_BE_EMPTY):
            faults.append(f"{name} is not set")
            continue
        found[each.name] = value.strip()
    if not found.get("config_path", "/").startswith("/"):
        faults.append("QUITCLAIM_CONFIG_PATH must begin with a slash")
    faults += [
        f"QUITCLAIM_RETURN_ORIGINS: number {number} is no origin (https://host[:port], nothing after it)"
        for number, origin in enumerate(_listed(found.get("return_origins", "")), start=1)
        if origin_of(origin) != origin or "*" in origin
    ]
    if faults:
        raise SettingsError(faults)
    return kind(**found)


def origins(listed: str) -> frozenset[str]:
    """The return origins of a comma list."""
    return frozenset(_listed(listed))


def _listed(listed: str) -> list[str]:
    return [part.strip().rstrip("/").lower() for part in listed.split(",") if part.strip()]
