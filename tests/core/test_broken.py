"""Engines that say that their device has failed."""

from __future__ import annotations

import pytest

from supervisor.core.engine_output.broken import cause_of_break, said_broken, tells_of_break
from supervisor.core.engine_output.failures import cause_of

LOST = "decode() failed: vk::Queue::submit: ErrorDeviceLost"
SHORT = "decode() failed: vk::Device::allocateMemory: ErrorOutOfDeviceMemory"


def error(message: str) -> dict[str, object]:
    """llama-server's own error object."""
    return {"code": 500, "message": message, "type": "server_error"}


@pytest.mark.parametrize(
    "message",
    [
        LOST,
        SHORT,
        "Compute error.",
        "pre_decode() failed: std::bad_alloc",
        "post_decode() failed: CUDA out of memory",
        "decode() failed: failed to allocate compute pp buffers",
    ],
)
def test_what_ends_an_engine_is_known_in_an_answer_and_in_the_log(message: str) -> None:
    assert said_broken(error(message)) == message
    assert tells_of_break(f"0.12.345.678 E srv  update_slots: {message}".encode())
    assert tells_of_break(f"srv  update_slots: {message}".encode())


@pytest.mark.parametrize(
    "message",
    [
        "post_decode() failed: Unexpected empty grammar stack after accepting piece: x",
        "post_decode() failed: Unexpected empty grammar stack after accepting piece: bad_alloc",
        "Context size has been exceeded.",
        "Invalid input batch.",
        "the prompt says: decode() failed: vk::Queue::submit: ErrorDeviceLost",
        "no",
    ],
)
def test_other_errors_end_a_request_alone(message: str) -> None:
    assert not said_broken(error(message))
    assert not tells_of_break(f"0.12.345.678 E srv  update_slots: {message}".encode())


@pytest.mark.parametrize("code", [400, 403, 501, 503, "500", None])
def test_what_a_client_got_wrong_ends_nothing_whatever_it_quotes(code: object) -> None:
    assert not said_broken({**error(LOST), "code": code})


@pytest.mark.parametrize("said", [None, 500, LOST, [error(LOST)], {}, {"code": 500}, {"code": 500, "message": [LOST]}])
def test_what_is_no_error_ends_nothing(said: object) -> None:
    assert not said_broken(said)


@pytest.mark.parametrize(
    "line",
    [
        f"0.12.345.678 I srv  update_slots: {LOST}",
        f"0.12.345.678 D srv  update_slots: prompt: '{LOST}'",
        f"0.12.345.678 E slot update_slots: {LOST}",
    ],
)
def test_other_lines_are_not_the_one_after_the_reason(line: str) -> None:
    assert not tells_of_break(line.encode())


def test_a_device_that_was_lost_during_a_load_is_no_broken_file() -> None:
    found = cause_of(["llama_model_load: error loading model: vk::Queue::submit: ErrorDeviceLost"], code=1)
    assert found is not None
    assert found.code == "device_lost"


def test_the_lines_before_say_why() -> None:
    before = "ggml_vulkan: Device memory allocation of size 3145728 failed."
    found = cause_of_break([before, f"E srv  update_slots: {SHORT}"])
    assert (found.code, found.device, found.lacking) == ("out_of_memory", None, 3 << 20)
    assert cause_of_break([f"E srv  update_slots: {LOST}"]).code == "device_lost"
    found = cause_of_break([
        "ggml_metal: error: Insufficient Memory (00000008)",
        "E srv  decode: Compute error. off = 0",
    ])
    assert found.code == "out_of_memory"
