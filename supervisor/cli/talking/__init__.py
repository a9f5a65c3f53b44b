"""Talking to a model: a conversation with its commands and its line editor, and one question with one answer."""
