"""The verbs of the command line: one module each, and nothing else is in this folder.

A module `NAME.py` here is the verb NAME; `_` in it is `-` in the verb. It has

- `VERB`, a `Verb` (`cli/registry`): its line in `--help`, description, examples, further names. Write it with literals
  only: `--help` reads it without importing the module.
- `add_options(parser)`, which adds what the verb understands beside the common options.
- `run(args) -> int`, which does it and returns the exit code (`cli/exits`). Errors are raised, as SupervisorError.
  A verb with verbs of its own has no `run`; `add_options` gives each of them one, and `--json` (`options.inner_verb`).

What verbs share is in `supervisor/cli`; no verb imports another.
"""
