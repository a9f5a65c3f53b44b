"""What no single value shows: names that collide, models without a source, groups of nobody, refused arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from supervisor.config.document import Loc
from supervisor.config.faults import nearest
from supervisor.config.settings import DefaultSettings, ModelSettings, Settings
from supervisor.config.sources import DEMO, kind_of
from supervisor.core.launch.extra import check_env, check_extra
from supervisor.core.plaintext import is_name
from supervisor.errors import SupervisorError


class Complaint(NamedTuple):
    """What is wrong, where; `key`: with the key there, not its value."""

    loc: Loc
    message: str
    key: bool = False


def complaints(settings: Settings) -> Iterator[Complaint]:
    """Everything that is wrong with settings of which each value is right."""
    yield from _options(settings.defaults, ("defaults",))
    for name, model in settings.models.items():
        yield from _model(settings, name, model)
    yield from _names(settings)
    yield from _groups(settings)


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
        yield Complaint(loc, "name the model's `source` or `file`", key=True)
    yield from _options(model, loc)


def _options(model: DefaultSettings, loc: Loc) -> Iterator[Complaint]:
    yield from _refused(lambda: check_extra(model.extra_args, None), (*loc, "extra_args"))
    yield from _refused(lambda: check_env(model.env), (*loc, "env"))


def _refused(check: Callable[[], None], loc: Loc) -> Iterator[Complaint]:
    try:
        check()
    except SupervisorError as error:
        yield Complaint(loc, error.message)


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
                yield Complaint(loc, f"there is no model {member!r}{nearest(member, known)}")
