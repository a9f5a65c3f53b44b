"""The registry of models, by id and alias. Pure: paths are text."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace

from supervisor.core.launch import LaunchOptions
from supervisor.core.models.filters import RequestFilters
from supervisor.core.params.settings import RequestSettings
from supervisor.core.schedule import ModelPolicy
from supervisor.core.text.nearest import did_you_mean
from supervisor.core.text.plaintext import is_name
from supervisor.core.toolcalls.mode import ToolMode
from supervisor.errors import InvalidRequest, ModelIdTaken, ModelNotFound

NATIVE = "llama"
"""The kind of engine of a model for which nothing else is said (engines/kinds)."""

MOST_NAMES = 16
"""Aliases that loads may give one model, beside those that are configured."""

_TOLD = 64  # models of which it is told why they are not here any more
_NAMED = 8  # models that a name could mean which an error lists
_QUOTED = 200  # characters of a name that nobody knows which an error repeats


class Source(enum.Enum):
    """The origin of a model."""

    DEMO = "demo"  # the built-in one, made on first use
    FILE = "file"
    HUB = "hub"  # a repository; downloaded when it is first wanted
    COMMAND = "command"  # of the configuration: what runs it says itself which model it has


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be requested.

    Attributes:
        path: the GGUF (the first shard of a split one); None for the built-in model, and for one of the hub that is
            not on disk, as far as anybody has looked.
        hub: the reference of one of the hub, `owner/repo` or `owner/repo:quant`.
        tool_calls: how calls are looked for in its answers; None: as the server does.
        configured: what its options are again once it is unloaded; None: what they are now.
        kind: of its engine.
        own: what the engine's kind knows of it beside the launch options: the options that are its own.
    """

    id: str
    source: Source
    path: str | None
    options: LaunchOptions = field(default_factory=LaunchOptions)
    aliases: tuple[str, ...] = ()
    hub: str | None = None
    policy: ModelPolicy = field(default_factory=ModelPolicy)
    filters: RequestFilters = field(default_factory=RequestFilters)
    requests: RequestSettings = field(default_factory=RequestSettings)
    tool_calls: ToolMode | None = None
    configured: LaunchOptions | None = None
    kind: str = NATIVE
    own: object | None = None

    @property
    def origin(self) -> str | None:
        """Hub reference or path that the model is made from."""
        return self.hub or self.path

    @property
    def own_options(self) -> LaunchOptions:
        """Options that it has without anybody's load."""
        return self.configured or self.options

    @property
    def given(self) -> dict[str, object]:
        """Options, by name, that a load has set otherwise than they are configured."""
        here, own = self.options, self.own_options
        names = (one.name for one in fields(LaunchOptions))
        return {name: getattr(here, name) for name in names if getattr(here, name) != getattr(own, name)}

    def loaded_with(self, options: LaunchOptions | None) -> ModelEntry:
        """Return the entry with these options until it is unloaded; None gives it its own."""
        own = self.own_options
        return replace(self, options=options or own, configured=None if options in (None, own) else own)

    def same_launch(self, other: ModelEntry) -> bool:
        """Return whether an engine of one entry serves for the other."""
        mine, theirs = (self.origin, self.kind, self.own), (other.origin, other.kind, other.own)
        return mine == theirs and self.options == other.options


def launch_digest(entry: ModelEntry) -> str:
    """Return a name for all that decides how a model's engine is launched: the same exactly where `same_launch` holds.

    Options at their defaults do not count, so that a version that knows more of them gives the same name.
    """
    said = [entry.origin, entry.kind, _chosen(entry.options), None if entry.own is None else _chosen(entry.own)]
    return hashlib.sha256(repr(said).encode("utf-8", "surrogateescape")).hexdigest()


def _chosen(options: object) -> list[tuple[str, object]]:
    """Return the options that are not at their defaults, by name."""
    if not is_dataclass(options):
        return [(type(options).__name__, options)]
    known = fields(options)
    default = {one.name: one.default_factory() if callable(one.default_factory) else one.default for one in known}
    found = ((one.name, getattr(options, one.name)) for one in known)
    return sorted((name, value) for name, value in found if value != default[name])


@dataclass(frozen=True)
class ModelDefaults:
    """The settings of a model for which nothing is configured."""

    options: LaunchOptions = field(default_factory=LaunchOptions)
    policy: ModelPolicy = field(default_factory=ModelPolicy)
    filters: RequestFilters = field(default_factory=RequestFilters)
    requests: RequestSettings = field(default_factory=RequestSettings)
    tool_calls: ToolMode | None = None


class Registry:
    """The models in the order in which they were added; `defaults` are for those that people load by path."""

    def __init__(self, entries: Iterable[ModelEntry] = (), defaults: ModelDefaults | None = None) -> None:
        self.defaults = defaults or ModelDefaults()
        self._entries: dict[str, ModelEntry] = {}
        self._names: dict[str, str] = {}  # id or alias → id
        self._spelt: dict[str, str] = {}  # the same of models of a hub, in lower case
        self._given: dict[str, tuple[str, ...]] = {}  # id → the aliases that loads gave, the oldest first
        self._forgotten: dict[str, str] = {}  # id → why, of late
        for entry in entries:
            self.check(entry)
            self._hold(self._renewed(entry, self._new_names(entry), keep=False))

    def __iter__(self) -> Iterator[ModelEntry]:
        return iter(self._entries.values())

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, entry: ModelEntry, *, keep: bool = False) -> bool:
        """Add a model, or give the one with the same id and path these options; return whether its options changed.

        Whatever else is set for one that is here stays, and further aliases come to it, of which it keeps the newest
        `MOST_NAMES`; with `keep` its options stay. Raises as `check`.
        """
        self.check(entry)
        before = self._entries.get(entry.id)
        new = self._new_names(entry)
        given = (*self._given.get(entry.id, ()), *new)
        self._hold(self._renewed(entry, new, keep=keep))
        self._take_names(entry.id, given[:-MOST_NAMES])
        self._given[entry.id] = given[-MOST_NAMES:]
        self._forgotten.pop(entry.id, None)
        return before is not None and before.options != self._entries[entry.id].options

    def _new_names(self, entry: ModelEntry) -> tuple[str, ...]:
        """Return the aliases by which the entry could not be found yet."""
        found = ((name, self.get(name)) for name in dict.fromkeys(entry.aliases))
        return tuple(name for name, owner in found if owner is None or owner.id != entry.id)

    def _renewed(self, entry: ModelEntry, names: tuple[str, ...], *, keep: bool) -> ModelEntry:
        """Return the entry, or the present one with its options and further names."""
        before = self._entries.get(entry.id)
        if before is None:
            return entry
        return replace(before if keep else before.loaded_with(entry.options), aliases=(*before.aliases, *names))

    def _hold(self, entry: ModelEntry) -> None:
        self._entries[entry.id] = entry
        names = (entry.id, *entry.aliases)
        self._names.update(dict.fromkeys(names, entry.id))
        if entry.hub is not None:
            self._spelt.update((name.lower(), entry.id) for name in names)

    def _take_names(self, model_id: str, names: Collection[str]) -> None:
        if names:
            entry = self._entries[model_id]
            kept = tuple(name for name in entry.aliases if name not in names)
            self._entries[model_id] = replace(entry, aliases=kept)
            self._names = {name: owner for name, owner in self._names.items() if name not in names}
            self._spell()

    def _spell(self) -> None:
        self._spelt = {name.lower(): owner for name, owner in self._names.items() if self._entries[owner].hub}

    def check(self, entry: ModelEntry) -> None:
        """Raise what adding the entry would raise.

        ModelIdTaken where a name of it already belongs to another model, InvalidRequest where one is no name.
        """
        for name in (entry.id, *entry.aliases):
            if not is_name(name):
                raise InvalidRequest(f"{name!r} cannot name a model; use printable characters.", param="id")
            owner = self._names.get(name)
            if owner is not None and (owner != entry.id or self._entries[owner].origin != entry.origin):
                other = self._entries[owner].origin or owner
                raise ModelIdTaken(f"'{name}' already names the model {other}; choose another with --id.", param="id")

    def become(self, other: Registry) -> None:
        """Take over all that the other registry holds, for everybody who uses this one."""
        self.defaults, self._entries, self._names = other.defaults, dict(other._entries), dict(other._names)
        self._given = {entry.id: self._still_given(entry) for entry in self}
        self._spell()

    def _still_given(self, entry: ModelEntry) -> tuple[str, ...]:
        return tuple(name for name in self._given.get(entry.id, ()) if name in entry.aliases)

    def policy_of(self, model_id: str) -> ModelPolicy:
        """Return the policy of the model; the defaults for one that is gone."""
        entry = self._entries.get(model_id)
        return self.defaults.policy if entry is None else entry.policy

    def get(self, name: str) -> ModelEntry | None:
        """Return the model with this id or alias, if there is one. Unlike `find`, it is cheap where there is none.

        Names of models of a hub count in any case, as the hub takes them; one that is written alike comes first.
        """
        model_id = self._names.get(name) or self._spelt.get(name.lower())
        return None if model_id is None else self._entries[model_id]

    def find(self, name: str) -> ModelEntry:
        """Return the model with this id or alias. Raise ModelNotFound, naming the models there are."""
        entry = self.get(name)
        if entry is None:
            raise self._not_found(name)
        return entry

    def meant(self, name: str) -> ModelEntry:
        """Return the model that a request's name means: its id or alias, written in any case, or a beginning of one.

        An exact name comes before one in another case, and that before a beginning. Raise ModelNotFound where there is
        none, or a beginning fits several models.
        """
        entry = self.get(name)
        if entry is not None:
            return entry
        typed = name.lower()
        same = {owner for known, owner in self._names.items() if known.lower() == typed}
        longer = {owner for known, owner in self._names.items() if known.lower().startswith(typed)}
        fitting = sorted(same or longer)
        if len(fitting) > 1:
            raise self._ambiguous(name, fitting)
        return self.find(fitting[0] if fitting else name)

    def was_forgotten(self, name: str) -> bool:
        """Return whether a model of this id was dropped of late, of which it is told why."""
        return name in self._forgotten

    def only(self, loaded: Collection[str]) -> ModelEntry | None:
        """Return the only model that a request without a name can mean, if there is just one.

        That is the only one of those that are loaded, else the only one there is. The built-in one counts where there
        is no other.
        """
        here = [entry for entry in self if entry.id in loaded]
        own = [entry for entry in self if entry.source is not Source.DEMO]
        candidates = here or own or list(self)
        return candidates[0] if len(candidates) == 1 else None

    def limited(self, sees: Callable[[str], bool]) -> Registry:
        """Return a registry of those models of which `sees` says, by their ids, that they are there."""
        found = Registry((), self.defaults)
        for entry in filter(lambda entry: sees(entry.id), self):
            found._hold(entry)
        return found

    def most_slashes(self) -> int:
        """Return the largest number of slashes in a name."""
        return max((name.count("/") for name in self._names), default=0)

    def by_hub(self, reference: str) -> ModelEntry | None:
        """Return the model that was made from this reference, in whatever case it was written."""
        wanted = reference.lower()
        return next((entry for entry in self._entries.values() if (entry.hub or "").lower() == wanted), None)

    def locate(self, model_id: str, path: str | None) -> None:
        """Note the path of a model of the hub; None if it is no longer on disk."""
        entry = self._entries.get(model_id)
        if entry is not None:
            self._entries[model_id] = replace(entry, path=path)

    def set_options(self, model_id: str, options: LaunchOptions | None) -> None:
        """Give a model, if it is here, these options until it is unloaded; None gives it its own."""
        entry = self._entries.get(model_id)
        if entry is not None:
            self._entries[model_id] = entry.loaded_with(options)

    def forget(self, model_id: str, why: str | None = None) -> str | None:
        """Drop a model and its names. Whoever asks for it is told `why`, a sentence, for a while.

        Return the id of a model of which that is no longer told; None if there is none.

        The id of a model of which that is not told any longer; None: there is none.
        """
        self._entries.pop(model_id, None)
        self._given.pop(model_id, None)
        self._names = {name: owner for name, owner in self._names.items() if owner != model_id}
        self._spell()
        if why is not None:
            self._forgotten[model_id] = why
        oldest = next(iter(self._forgotten)) if len(self._forgotten) > _TOLD else None
        if oldest is not None:
            del self._forgotten[oldest]
        return oldest

    def _not_found(self, name: str) -> ModelNotFound:
        known = ", ".join(self._entries) or "none"
        near = did_you_mean(name, self._names)
        if name in self._forgotten:
            near = f" any more: {self._forgotten[name]}"
        quoted = name if len(name) <= _QUOTED else f"{name[:_QUOTED]}…"
        return ModelNotFound(
            f"There is no model '{quoted}'{near or '.'} Known models: {known}. "
            "Add one with `supervisor load PATH`, or one of the hub with `supervisor load owner/repo:quant`.",
            param="model",
        )

    def _ambiguous(self, name: str, fitting: Sequence[str]) -> ModelNotFound:
        several = ", ".join(fitting[:_NAMED]) + ("" if len(fitting) <= _NAMED else ", …")
        return ModelNotFound(
            f"'{name[:_QUOTED]}' is the beginning of several models: {several}. Name one.", param="model"
        )

    def by_path(self, path: str) -> ModelEntry | None:
        """Return the model that was made from this file."""
        return next((entry for entry in self._entries.values() if entry.path == path), None)
