"""Choose a variant: the one that was named, or the best that fits; and the projector that goes with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeAlias

from supervisor.core.repository.entries import RepoFile, Variant
from supervisor.core.repository.mlx import NAME as MLX
from supervisor.core.repository.names import folder_of, usual
from supervisor.core.repository.quality import ORDER, rank
from supervisor.core.repository.variants import Catalog
from supervisor.errors import ShardMissing, VariantAmbiguous, VariantNotFound

Preference: TypeAlias = Literal["quality", "speed", "context"]
"""What counts most among the variants that fit.

`quality`: the most bits per weight, however slow. `speed`: the most tokens per second. `context`: the longest one of a
request. The latter two take none below Q4_0 while a better one fits.
"""

_GOOD = ORDER.index("Q4_0")
_SPILLED_FROM = ORDER.index("Q4_K_M")
_MIB = 1 << 20
_GIB = 1 << 30
_MAX_NAMED = 3
_MAX_TOLD = 64  # variants that a message names
_MAX_CHOICES = 256
"""Models of one repository among which the best is looked for: each is planned."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The prospects of a variant on this machine.

    Attributes:
        fits: it can be loaded at all.
        well: with all layers on devices where there are some, and with the wanted context.
        note: in words, for the table.
        spilled: a part of it is computed by the host although there are devices.
        context: tokens that a request would have.
        speed: tokens per second, foretold; of a variant whose header was not read, by its size.
    """

    variant: Variant
    fits: bool | None
    well: bool = False
    note: str = ""
    context: int = 0
    speed: float = 0.0
    spilled: bool = False


def find(catalog: Catalog, repo: str, quant: str | None, path: str | None) -> tuple[Variant, ...]:
    """Return the variants that were named by quantisation or path; all of them where neither was given.

    The model for MLX is named `mlx`; it is also found by the repository's name where there is none in GGUF.

    A quantisation is one whole token, in any case: `Q4_K` is not `Q4_K_M`, `F16` is not `BF16`. `Q4_K_XL` finds
    `UD-Q4_K_XL` where there is no plain one. Raises VariantNotFound with what there is, ShardMissing with the parts
    that are not there, and VariantAmbiguous, also where there are too many to choose from.
    """
    if path is not None:
        found = _by_path(catalog, path)
    elif quant is not None:
        found = _by_quant(catalog, quant)
    else:
        found = catalog.variants or catalog.loadable
    if not found:
        raise VariantNotFound(_not_found(catalog, repo, path or quant))
    if quant is None and path is None:
        whole = tuple(variant for variant in found if not variant.missing)
        if len(whole) > _MAX_CHOICES:
            raise VariantAmbiguous(
                f"{repo} has {len(whole)} models, too many to choose from ({_MAX_CHOICES}); name one by its "
                f"quantisation or its path: {repo}/{whole[0].path}."
            )
        return whole or (_whole(found[0]),)
    if len(found) > 1:
        names = _told((f"{repo}/{variant.path}" for variant in found), len(found))
        raise VariantAmbiguous(f"{repo} has several files for '{path or quant}'; name one by its path: {names}.")
    return (_whole(found[0]),)


def listing(assessed: Sequence[Assessment]) -> str:
    """Return the variants on one line: name, size, and whether each fits."""
    return _told(map(_entry, assessed), len(assessed))


def _told(texts: Iterable[str], count: int) -> str:
    more = f" and {count - _MAX_TOLD} more" if count > _MAX_TOLD else ""
    return ", ".join(islice(texts, _MAX_TOLD)) + more


def best(assessed: Sequence[Assessment], prefer: Preference | None = None) -> Variant | None:
    """Return the best quality that fits well, or what is preferred among those that fit.

    If none fits well, return the first that fits from Q4_K_M downward, then upward.
    """
    ordered = sorted(assessed, key=lambda one: rank(one.variant.quant))
    if prefer is not None:
        return _preferred([one for one in ordered if one.fits], prefer)
    for one in ordered:
        if one.well:
            return one.variant
    fitting = [one.variant for one in ordered if one.fits]
    smaller = [variant for variant in fitting if rank(variant.quant)[0] >= _SPILLED_FROM]
    return smaller[0] if smaller else (fitting[-1] if fitting else None)


def _preferred(ordered: Sequence[Assessment], prefer: Preference) -> Variant | None:
    """Return the first of the best by what is preferred; of variants that fit, the best quality first."""
    good = [one for one in ordered if rank(one.variant.quant)[0] <= _GOOD] or ordered
    match prefer:
        case "quality":
            found = ordered[:1]
        case "speed":
            found = sorted(good, key=lambda one: -one.speed)
        case "context":
            found = sorted(good, key=lambda one: (-one.context, one.spilled))
    return found[0].variant if found else None


def projector_for(catalog: Catalog, variant: Variant) -> RepoFile | None:
    """Return the projector to use, from those in the deepest folder that also holds the variant, else from all."""
    best_of, folder = catalog.best_projectors, variant.folder
    while folder and folder not in best_of:
        folder = folder_of(folder)
    return best_of.get(folder) or best_of.get(None)


def _by_path(catalog: Catalog, path: str) -> tuple[Variant, ...]:
    """Return the variants with this path of a part, or with this folder of all parts."""
    wanted = path.lower()
    found = tuple(one for one in catalog.variants if wanted in {part.path.lower() for part in one.parts})
    return found or tuple(one for one in catalog.variants if one.folder.lower() == wanted.rstrip("/"))


def _by_quant(catalog: Catalog, quant: str) -> tuple[Variant, ...]:
    wanted = usual(quant)
    if wanted == MLX:
        return (catalog.mlx,) if catalog.mlx else ()
    exact = tuple(one for one in catalog.variants if one.quant == wanted)
    return exact or tuple(one for one in catalog.variants if one.quant.removeprefix("UD-") == wanted)


def _whole(variant: Variant) -> Variant:
    if not variant.missing:
        return variant
    more = f" and {len(variant.missing) - _MAX_NAMED} more" if len(variant.missing) > _MAX_NAMED else ""
    raise ShardMissing(
        f"The repository lacks parts of {variant.name}: {', '.join(islice(variant.missing, _MAX_NAMED))}{more}. "
        "Choose another variant, or another revision."
    )


def _not_found(catalog: Catalog, repo: str, wanted: str | None) -> str:
    if not catalog.loadable:
        return f"{repo} has no GGUF model. Look for a repository of the model's name that ends in -GGUF."
    there = listing([Assessment(variant, None) for variant in catalog.loadable])
    return f"{repo} has no '{wanted}'. It has: {there}."


def _entry(one: Assessment) -> str:
    size = one.variant.size
    known = None if size is None else f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{-(-size // _MIB)} MiB"
    verdict = {True: "fits", False: "does not fit", None: None}[one.fits]
    told = ", ".join(filter(None, (known, verdict)))
    return f"{one.variant.name} ({told})" if told else one.variant.name
