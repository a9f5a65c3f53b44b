"""The texts of the built-in model: data only. `docs/built-in-model.md` lists them for users.

The malformed tool calls miss the engine's trigger (`<tool_call>` and a newline) on purpose: after it a grammar would
bend them into well-formed calls as soon as a request offers tools.
"""

from __future__ import annotations

from supervisor.demo.script import Reply, Script

INTRODUCTION = (
    "Hello! I am the built-in model of llama-supervisor, and this answer came all the way: from a real llama-server, "
    "started and watched by the supervisor, streamed through its proxy to you. I know a few fixed texts and nothing "
    "else, so here is what to do next:\n\n"
    "1. Load a real model: bin/supervisor load owner/repo:quant\n"
    "2. Talk to it: bin/supervisor chat\n"
    "3. Or point any OpenAI client at the base URL that `load` printed; it ends in /v1\n\n"
    "Say `words` to see what else I can do."
)

AFTER_TOOL = (
    "Thank you, the tool's result has reached me. I cannot read it, but the whole way works: "
    "the call went out, its result came back, and this is the answer after it."
)

WORDS = (
    "These words in a message pick another text:\n\n"
    "- long: a long text, to be cancelled on the way\n"
    "- endless: one that you can cancel at leisure; it stops only at a limit\n"
    "- think: reasoning, then an answer\n"
    "- late-think: a think block that comes too late to be reasoning\n"
    "- fixed-call: a well-formed call of get_weather, whatever tools you offer\n"
    "- broken-json, broken-xml, unclosed, truncated: tool calls that went wrong\n\n"
    "Offer me tools and say none of these: I call the first one."
)

THINK = (
    "<think>\nThe user wants to see reasoning. I have none, but I can show where it goes.\n</think>\n\n"
    "Reasoning travels in a field of its own, `reasoning_content`; this sentence is the answer."
)

LATE_THINK = "Let me see. <think>\nThis block stands behind some words.\n</think>\nSo it stays in the content."

LONG = """\
This is the long text. It has no plot; it is here to be cancelled. A model without a mind is fast, so you may find \
that hard: say `endless` then, and take your time.

A request that nobody reads any more should cost nothing. When you close the window, press Ctrl-C or drop the \
connection, the supervisor notices, closes its own stream to the engine, and the engine frees the slot. The next \
request can have it at once, and the memory of this one is left in the cache for whoever continues the conversation.

That sounds simple, yet there are several moments at which you may leave. You may leave while the request waits for \
a model that is still loading: then it leaves the queue, and nobody is served in your name. You may leave while the \
prompt is being read: then the work ends with the batch that is being computed. You may leave in the middle of the \
answer, as you can try with this text. Or you may leave between the last word and the end of the stream, and then \
there is nothing left to stop.

Each of these moments has a test. The tests start a real engine, ask for a text like this one, read a few pieces, \
hang up, and then look at the engine's slots until one is idle again. A clock runs meanwhile.

Perhaps you wonder why a model is built in at all. Because a program that starts other programs can only be trusted \
when it has done so in front of your eyes. A small file that says known words makes that possible on any machine, \
without a download, within a second; and whoever tests a client gets the same answer every time.

If you have read this far, nothing was cancelled. The engine has said every word of the text, one piece after the \
other, and stops here of its own accord.
"""

ENDLESS = "This sentence goes on and on, around and around, until somebody stops it or the context is full. "

FIXED_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
BROKEN_JSON = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris",}\n</tool_call>'
BROKEN_XML = "<function=get_weather>\n<parameter=city>\nParis\n</function>\n</tool_call>"
UNCLOSED = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}'
TRUNCATED = '<tool_call>{"name": "get_weather", "arguments": {"ci'

DEMO = Script(
    name="demo",
    default=INTRODUCTION,
    after_tool=AFTER_TOOL,
    call_first_tool=True,
    replies=(
        Reply("words", WORDS),
        Reply("long", LONG),
        Reply("endless", ENDLESS, endless=True),
        Reply("late-think", LATE_THINK),
        Reply("think", THINK),
        Reply("fixed-call", FIXED_CALL),
        Reply("broken-json", BROKEN_JSON),
        Reply("broken-xml", BROKEN_XML),
        Reply("unclosed", UNCLOSED),
        Reply("truncated", TRUNCATED),
    ),
)
