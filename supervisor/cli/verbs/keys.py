"""`keys`: the daemon's API keys."""

from __future__ import annotations

import argparse
import time
from urllib.parse import quote

from supervisor.cli.client import Client, Json
from supervisor.cli.daemon import connect
from supervisor.cli.exits import OK
from supervisor.cli.options import Run, Subparsers, add_daemon, inner_verb, length_of_time, positive
from supervisor.cli.registry import Verb
from supervisor.cli.render import ago, duration, note, print_json, print_table

VERB = Verb(
    summary="add, show and revoke API keys",
    order=195,
    description="Add, show, rotate and revoke the daemon's API keys.",
    examples=(
        ("keys add me --scope manage --scope infer", "the first key: from now on every request needs one"),
        ("keys add bot --model 'qwen3-*' --expires 30d", "a key that uses some models, for a month"),
        ("keys list", "what each key may do and has used"),
        ("keys rotate bot", "another text for a key that leaked"),
        ("keys revoke bot", "no request with it any more"),
    ),
)

_PATH = "/api/v1/keys"
_SCOPES = ("infer", "manage", "read")
_HEADERS = ("NAME", "STATE", "SCOPES", "MODELS", "EXPIRES", "REQUESTS", "TOKENS", "LIMITS")
_ADD = """Add a key and print it; it is shown this once. `infer` uses models, `read` looks at models, requests and logs,
`manage` may do everything else, and look. The first key needs the scope `manage`, and must not expire."""
_ROTATE = "Give a key another text and print it. What it may do and has used stays; the old text is of no use at once."


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="keys_verb", required=True)
    add = _verb(verbs, "add", "add a key", run_add, _ADD)
    add.add_argument("--scope", action="append", choices=_SCOPES, help="what it may do, once for each (default: infer)")
    add.add_argument("--model", action="append", metavar="PATTERN", default=[],
                     help="a model that it sees, by its id; `*` stands for any text (default: all)")  # fmt: skip
    add.add_argument("--expires", type=length_of_time, metavar="TIME", help="how long it is of use, such as 12h or 30d")
    add.add_argument("--requests-per-minute", type=positive, metavar="N", help="requests that it may send a minute")
    add.add_argument("--tokens-per-minute", type=positive, metavar="N", help="tokens that it may use a minute")
    add.add_argument("--token-budget", type=positive, metavar="N", help="tokens that it may use in all")
    listing = inner_verb(verbs, "list", "show all keys, and what they have used", run_list)
    add_daemon(listing)
    _verb(verbs, "rotate", "give a key another text", run_rotate, _ROTATE)
    _verb(verbs, "revoke", "end a key", run_revoke)


def run_add(args: argparse.Namespace) -> int:
    """Add a key and print its text."""
    wanted = {
        "name": args.name,
        "scopes": args.scope or ["infer"],
        "models": args.model,
        "expires_at": None if args.expires is None else time.time() + args.expires,
        "requests_per_minute": args.requests_per_minute,
        "tokens_per_minute": args.tokens_per_minute,
        "token_budget": args.token_budget,
    }
    return _tell(args, _client(args).post(_PATH, wanted))


def run_rotate(args: argparse.Namespace) -> int:
    """Give a key another text and print it."""
    return _tell(args, _client(args).post(f"{_PATH}/{quote(args.name, safe='')}/rotate", {}))


def run_list(args: argparse.Namespace) -> int:
    """Print all keys."""
    found = _client(args).get(_PATH)
    if args.json:
        print_json(found)
    elif found["keys"]:
        print_table(_HEADERS, [_row(key) for key in found["keys"]])
    else:
        print("no key was added; `keys add` adds one")
    return OK


def run_revoke(args: argparse.Namespace) -> int:
    """End a key."""
    found = _client(args).delete(f"{_PATH}/{quote(args.name, safe='')}", {})
    if args.json:
        print_json(found)
    else:
        print(f"{found['name']} is revoked")
    return OK


def _verb(verbs: Subparsers, name: str, short: str, run: Run, description: str = "") -> argparse.ArgumentParser:
    parser = inner_verb(verbs, name, short, run, description)
    parser.add_argument("name", metavar="NAME", help="its name")
    add_daemon(parser)
    return parser


def _client(args: argparse.Namespace) -> Client:
    return connect(args).client


def _tell(args: argparse.Namespace, found: Json) -> int:
    if args.json:
        print_json(found)
        return OK
    print(found["key"])
    note(
        "This key is not shown again: keep it now. Clients send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
    )
    return OK


def _row(key: Json) -> tuple[str, ...]:
    usage = key["usage"]
    return (
        key["name"],
        key["state"],
        ",".join(key["scopes"]),
        ",".join(key["models"]) or "all",
        _when(key["expires_at"]),
        str(usage["requests"]),
        str(usage["prompt_tokens"] + usage["completion_tokens"]),
        _limits(key),
    )


def _when(at: float | None) -> str:
    if at is None:
        return "never"
    left = at - time.time()
    return f"in {duration(left)}" if left > 0 else f"{ago(at)} ago"


def _limits(key: Json) -> str:
    told = (
        (key["requests_per_minute"], "requests/min"),
        (key["tokens_per_minute"], "tokens/min"),
        (key["token_budget"], "tokens"),
    )
    return ", ".join(f"{most} {what}" for most, what in told if most is not None) or "-"
