"""Check what no single value shows: names that collide, models without a source, empty groups, refused arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from supervisor.config.document import Loc
from supervisor.config.options import chosen_from, launch_options
from supervisor.config.settings import DefaultSettings, ModelSettings, ServerSettings, Settings
from supervisor.config.sources import DEMO, engine_of, kind_of
from supervisor.config.words import nearest
from supervisor.core.launch.extra import check_env, check_extra
from supervisor.core.requests.access import is_loopback
from supervisor.core.text.plaintext import is_name
from supervisor.engines.kinds import KINDS, NATIVE_KIND
from supervisor.errors import ConfigError, SupervisorError
from supervisor.system.certificates import server_context


class Complaint(NamedTuple):
    """A complaint and its place. `key`: about the key there, not its value. `about`: the values it follows from."""

    loc: Loc
    message: str
    key: bool = False
    about: tuple[Loc, ...] = ()

    def follows_from(self, wrong: Iterable[Loc]) -> bool:
        """Return whether one of these places, which are wrong themselves, is the reason."""
        mine = self.about or (self.loc,)
        return any(_within(one, other) or _within(other, one) for one in mine for other in wrong)


def complaints(settings: Settings, *, insecure: bool) -> Iterator[Complaint]:
    """Yield everything that is wrong between values that are right by themselves.

    `insecure`: an address that others can reach needs no key, or nobody listens.
    """
    if not insecure and not settings.server.api_keys:
        yield from _reachable(settings.server)
    yield from _tls(settings)
    yield from _options(settings.defaults, ("defaults",))
    for name, model in settings.models.items():
        yield from _model(settings, name, model)
    yield from _names(settings)
    yield from _groups(settings)


def _reachable(server: ServerSettings) -> Iterator[Complaint]:
    for number, (host, _) in enumerate(server.addresses()):
        if not is_loopback(host):
            loc: Loc = ("server", "host") if number == 0 else ("server", "listen", number - 1)
            yield Complaint(
                loc,
                f"{host} can be reached from other machines: set api_keys or $SUPERVISOR_API_KEY, "
                "or start with `serve --insecure` to go without",
                about=(loc, ("server", "api_keys")),
            )


def _tls(settings: Settings) -> Iterator[Complaint]:
    server = settings.server
    for one, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert"), ("tls_client_ca", "tls_cert")):
        if getattr(server, one) is not None and getattr(server, other) is None:
            yield Complaint(("server", one), f"goes with `{other}`, which is missing", key=True)


def certificates(settings: Settings) -> Iterator[Complaint]:
    """Yield what is wrong with the files for TLS. Paths are absolute."""
    files = settings.server.tls_files()
    if files is None:
        return
    try:
        server_context(files)
    except ConfigError as error:
        yield Complaint(tuple(str(error.param).split(".")), error.message)


def _model(settings: Settings, name: str, model: ModelSettings) -> Iterator[Complaint]:
    loc = ("models", name)
    if model.source is not None and model.file is not None:
        yield Complaint((*loc, "file"), "`source` and `file` both name the model; leave one out", key=True)
    elif model.source is not None and kind_of(model.source) is None:
        yield Complaint(
            (*loc, "source"),
            f"{model.source!r} is neither `demo`, a path (./{model.source}?) nor a repository (owner/repo:quant)",
        )
    elif model.source is None and model.file is None and settings.models_dir is None and name != DEMO:
        about = ((*loc, "source"), (*loc, "file"), ("models_dir",))
        yield Complaint(loc, "name the model's `source` or `file`", key=True, about=about)
    yield from _options(model, loc)
    yield from _engine(model, loc)


def _engine(model: ModelSettings, loc: Loc) -> Iterator[Complaint]:
    """Yield options that the model's kind of engine does not know, and what is wrong between its own."""
    kind = engine_of(model) or NATIVE_KIND
    others = frozenset().union(*(one.knows for one in KINDS.values())) - kind.knows
    for name in sorted((others | kind.lacks) & model.model_fields_set):
        yield Complaint((*loc, name), f"means nothing to the engine of this model ({kind.summary})", key=True)
    for name, told in kind.complaints(chosen_from(kind.options, model)):
        place = (*loc, name) if name in model.model_fields_set else loc
        yield Complaint(place, f"`{name}`: {told}", key=True)


def _options(model: DefaultSettings, loc: Loc) -> Iterator[Complaint]:
    options = launch_options(model)
    for number, argument in enumerate(options.extra_args):
        yield from _refused(partial(check_extra, [argument], None), (*loc, "extra_args", number))
    for name, value in options.env.items():
        yield from _refused(partial(check_env, {name: value}), (*loc, "env", name), key=True)


def _refused(check: Callable[[], None], loc: Loc, *, key: bool = False) -> Iterator[Complaint]:
    try:
        check()
    except SupervisorError as error:
        yield Complaint(loc, error.message, key)


def _names(settings: Settings) -> Iterator[Complaint]:
    owners = dict.fromkeys(settings.models, "")
    for name, model in settings.models.items():
        if not is_name(name):
            yield Complaint(("models", name), "cannot name a model; use printable characters", key=True)
        for number, alias in enumerate(model.aliases):
            loc = ("models", name, "aliases", number)
            if not is_name(alias):
                yield Complaint(loc, f"{alias!r} cannot name a model; use printable characters")
            elif alias in owners and owners[alias] != name:
                yield Complaint(loc, f"{alias!r} already names another model")
            elif alias == DEMO and DEMO not in settings.models and model.source != DEMO:
                yield Complaint(loc, f"{alias!r} already names the built-in model")
            owners.setdefault(alias, name)


def _groups(settings: Settings) -> Iterator[Complaint]:
    known = {*settings.models, DEMO}
    for name, group in settings.groups.items():
        for number, member in enumerate(group.members):
            loc = ("groups", name, "members", number)
            if member not in known and settings.models_dir is None:
                told = f"there is no model {member!r}{nearest(member, known)}"
                yield Complaint(loc, told, about=(loc, ("models_dir",)))


def _within(inner: Loc, outer: Loc) -> bool:
    return inner[: len(outer)] == outer
