"""LocalAI's contract with a backend: its messages, and what they mean in calls of ours, both ways.

messages   the messages of `backend.Backend`, one dataclass each, whose fields carry their numbers on the wire
loading    a model that is to be loaded, as the body of a load
asking     a request for text, as the body of a chat or of a completion
answering  answers, whole or in pieces, as replies
loaded     the models that were loaded, by the name that requests give
refusals   errors, as the status of a call
watching   when the process that started a backend counts as gone
"""
