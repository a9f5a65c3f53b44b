"""What a talkative engine says that nobody wants: on lines that llama-server b11434 wrote for two requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.engine_output.chatter import is_chatter, unquoted

LOGS = Path(__file__).parent / "logs"


def lines(name: str) -> list[bytes]:
    return (LOGS / name).read_bytes().splitlines()


def without_stamp(line: bytes) -> bytes:
    return line.partition(b" ")[2]


def test_a_request_at_level_4_leaves_the_lines_of_level_3() -> None:
    kept = [line for line in lines("requests-4.log") if not is_chatter(line)]
    shapes = [without_stamp(line).split(b"=")[0].split(b"selected slot")[0] for line in kept]
    usual = [without_stamp(line).split(b"=")[0].split(b"selected slot")[0] for line in lines("requests-3.log")]
    assert shapes == usual


@pytest.mark.parametrize("line", lines("requests-3.log"))
def test_what_level_3_says_is_kept(line: bytes) -> None:
    assert not is_chatter(line)


@pytest.mark.parametrize(
    "line",
    [
        b"0.01.000.000 E srv    send_error: all slots are idle and yet it failed",
        b"0.01.000.000 W slot update_slots: id  0 | task 3 | erasing old context checkpoint (pos_min = 1)",
        b"0.00.022.934 I srv  llama_server: model loaded",
        b"terminate called after throwing an instance of 'std::runtime_error'",
        b"",
    ],
)
def test_warnings_errors_and_unknown_lines_are_kept(line: bytes) -> None:
    assert not is_chatter(line)


@given(st.binary())
def test_any_line_can_be_asked_about(line: bytes) -> None:
    assert is_chatter(line) in {True, False}


@pytest.mark.parametrize("magic", ["root", "'roo", "ro''", "\x00\x01,'", "a, b"])
def test_bytes_of_a_file_that_is_no_model_are_not_repeated(magic: str) -> None:
    told = unquoted(f"E gguf_init_from_reader: invalid magic characters: '{magic}', expected 'GGUF'".encode())
    assert told == b"E gguf_init_from_reader: invalid magic characters: (not shown), expected 'GGUF'"
    told = unquoted(b"E x: unknown (magic, version) for sequence state file: 746f6f72, 3a2a3a32")
    assert told == b"E x: unknown (magic, version) for sequence state file: (not shown)"
    assert unquoted(b"I a line of another kind") == b"I a line of another kind"
