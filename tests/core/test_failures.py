"""Causes of failed starts: the real engine's words (b11434 on a CPU), and lines of back ends by its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.core.engine_output.failures import CODES, Cause, cause_of

CAPTURED = Path(__file__).parent / "failures"


def read(name: str) -> tuple[list[str], int]:
    *lines, last = (CAPTURED / f"{name}.log").read_text(encoding="utf-8").strip().splitlines()
    return lines, int(last.removeprefix("rc="))


SAID = (
    ("arch", "architecture_unknown", "architecture: 'lhasa'"),
    ("badflag", "launch_option_refused", "--no-such-flag"),
    ("badval", "launch_option_refused", "Unsupported cache type: q9_9"),
    ("device", "launch_option_refused", "invalid device: CUDA0"),
    ("template", "launch_option_refused", "chat template"),
    ("fa", "launch_option_refused", "requires flash_attn"),
    ("cut", "model_file_broken", "not within the file bounds"),
    ("cuthead", "model_file_broken", "failed to read key-value pairs"),
    ("garbage", "model_file_broken", "version 4294967295"),
    ("nogguf", "model_file_broken", "invalid magic"),
    ("missing", "model_file_broken", "No such file"),
    ("notensor", "model_file_broken", "not found"),
    ("lora", "model_file_broken", "lora adapter"),
    ("draft_arch", "draft_failed", "arch.gguf"),
    ("draft_missing", "draft_failed", "none.gguf"),
    ("mmproj_is_model", "projector_failed", "demo.gguf"),
    ("mmproj_missing", "projector_failed", "none.gguf"),
    ("sockdir", "socket_unusable", "/run/nowhere/x.sock"),
    ("oomkv", "out_of_memory", "CPU: a buffer of 3908 MiB"),
    ("oomv", "out_of_memory", "CPU"),
)


@pytest.mark.parametrize(("name", "code", "told"), SAID)
def test_what_the_real_engine_says(name: str, code: str, told: str) -> None:
    lines, exit_code = read(name)
    found = cause_of(lines, code=exit_code)
    assert found is not None
    assert found.code == code
    assert told in found.message
    assert found.message.endswith(CODES[code])


def test_every_captured_text_is_looked_at() -> None:
    """So that none lies there unused."""
    assert {path.stem for path in CAPTURED.iterdir()} == {name for name, _, _ in SAID}


MIB = 1 << 20

CUDA = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.50 MiB on device 1: cudaMalloc failed: out of memory",
    "0.01.001 E ggml_backend_buft_alloc_buffer_n_default: failed to allocate CUDA1 buffer of size 8590458880",
    "0.01.002 E llama_model_load: error loading model: unable to allocate CUDA1 buffer",
)
ROCM = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 300.00 MiB on device 0: cudaMalloc failed: out of memory",
    "ggml_gallocr_reserve_n_impl: failed to allocate ROCm0 buffer of size 314572800",
    "graph_reserve: failed to allocate compute buffers",
)
VULKAN = (
    "ggml_vulkan: Device memory allocation of size 1073741824 failed.",
    "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
    "ggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer of size 1073741824",
)
METAL = (
    "ggml_metal_buffer_init: error: failed to allocate buffer, size =  4096.00 MiB",
    "ggml_backend_metal_buffer_type_alloc_buffer: failed to allocate Metal buffer of 4294967296 bytes (out of memory)",
    "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
)
RPC = ("ggml_gallocr_reserve_n_impl: failed to allocate RPC0[127.0.0.1:50052] buffer of size 1048576",)
AT_WORK = (
    "CUDA error: out of memory",
    "  current device: 2, in function alloc at ggml/src/ggml-cuda/ggml-cuda.cu:500",
    "  cuMemCreate(&handle, reserve_size, &prop, 0)",
)
ONLY_LAST = ("llama_model_load: error loading model: unable to allocate CUDA0 buffer",)


@pytest.mark.parametrize(
    ("lines", "device", "lacking"),
    [
        (CUDA, "CUDA1", 8590458880),
        (ROCM, "ROCm0", 300 * MIB),
        (VULKAN, "Vulkan0", 1 << 30),
        (VULKAN[:2], None, 1 << 30),
        (METAL, None, 4 << 30),
        (METAL[:1], None, 4 << 30),
        (CUDA[:1], "CUDA1", int(8192.5 * MIB)),
        (AT_WORK, "CUDA2", None),
        (RPC, "RPC0", MIB),
        (ONLY_LAST, "CUDA0", None),
        (("llama_context: failed to allocate output buffer of size 1048576",), None, None),
        (("graph_reserve: failed to allocate compute buffer of size 1", "std::bad_alloc"), "CPU", None),
        (
            ("ggml_backend_buft_alloc_buffer_n_default: failed to allocate CUDA_Host buffer of size 1048576",),
            "CPU",
            MIB,
        ),
        (
            ("ggml_backend_buft_alloc_buffer_n_default: failed to allocate CPU_REPACK buffer of size 1048576",),
            "CPU",
            MIB,
        ),
        (
            (
                "ggml-backend.cpp:1081: pre-allocated tensor (cache_k_l0) in a buffer (Vulkan1) that cannot run the "
                "operation (NONE)",
            ),
            "Vulkan1",
            None,
        ),
        (("terminate called after throwing", "  what():  std::bad_alloc"), "CPU", None),
    ],
)
def test_memory_is_said_with_device_and_size(lines: tuple[str, ...], device: str | None, lacking: int | None) -> None:
    found = cause_of(lines, code=1)
    assert found is not None
    assert (found.code, found.device, found.lacking) == ("out_of_memory", device, lacking)


def test_a_device_has_the_name_that_we_give_it() -> None:
    found = cause_of(VULKAN, code=1)
    assert found is not None
    ours = found.named({"Vulkan0": "Vulkan1", "Vulkan1": "Vulkan0"})
    assert (ours.device, ours.lacking) == ("Vulkan1", 1 << 30)
    assert "Out of memory on Vulkan1 (Vulkan0 to the engine): a buffer of 1024 MiB" in ours.message
    assert found.named({"Vulkan3": "Vulkan1"}) == found
    nameless = cause_of(VULKAN[:2], code=1)
    assert nameless is not None
    assert nameless.named({"Vulkan0": "Vulkan1"}) == nameless


def test_what_the_engine_can_do_without_is_no_lack_of_memory() -> None:
    pinned = "ggml_cuda_host_malloc: failed to allocate 512.00 MiB of pinned memory: out of memory"
    assert cause_of([pinned], code=1) is None
    assert cause_of(["WARNING: failed to allocate 512.00 MB of pinned memory"], code=1) is None


@pytest.mark.parametrize(
    "follower", ["failed to load multimodal model, '/m/p.gguf'", "failed to load draft model, '/m/d.gguf'"]
)
def test_memory_comes_before_what_follows_from_it(follower: str) -> None:
    assert _code([*CUDA, f"E srv load_model: {follower}"]) == "out_of_memory"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("llama-server: error while loading shared libraries: libcudart.so.12: cannot open", "library_missing"),
        ("dyld[123]: Library not loaded: @rpath/libggml.dylib", "library_missing"),
        ("llama-server: /lib/libc.so.6: version `GLIBC_2.38' not found (required by llama-server)", "library_missing"),
        (
            "E llama_init_from_model: failed to initialize the context: quantized V cache was requested, but this "
            "requires Flash Attention",
            "flash_attn_unsupported",
        ),
        ("ggml_metal_op_encode_impl: error: unsupported op 'FLASH_ATTN_EXT'", "flash_attn_unsupported"),
        ("ggml/src/ggml-cuda/fattn.cu:284: fatal error", "flash_attn_unsupported"),
        (
            "E error loading model: error loading model vocabulary: unknown pre-tokenizer type: 'new'",
            "architecture_unknown",
        ),
        ("E srv load_model: failed to create MTP context", "draft_failed"),
    ],
)
def test_other_words(line: str, code: str) -> None:
    assert _code([line]) == code


def test_an_exit_may_be_all_there_is() -> None:
    assert cause_of([], signal=9) == Cause("engine_killed", "The engine was killed from outside while it loaded", "CPU")
    assert _code([], code=127) == "library_missing"
    assert _code([], code=None, signal=4) == "device_unsupported"
    assert [_code([], code=None, signal=number) for number in (7, 8, 11)] == ["engine_crashed"] * 3
    assert cause_of(["all was well"], code=1) is None
    assert cause_of(["all was well"]) is None


def test_words_count_more_than_the_exit() -> None:
    assert _code(CUDA, signal=9) == "out_of_memory"


def _code(lines: list[str] | tuple[str, ...], *, code: int | None = 1, signal: int | None = None) -> str | None:
    found = cause_of(lines, code=code, signal=signal)
    return found.code if found else None


@pytest.mark.parametrize(
    "line",
    [
        "failed to allocate CUDA0 buffer of size " + "9" * 5000,
        "allocating 1.2.3 MiB on device 0: cudaMalloc failed: out of memory",
        f"allocating {'9' * 5000} MiB on device 0: cudaMalloc failed: out of memory",
        "insufficient memory (attempted to allocate ... MB)",
        f"failed to allocate buffer, size = {'9' * 400}.0 MiB: Out of memory",
    ],
)
def test_sizes_that_are_none(line: str) -> None:
    cause = cause_of([line], code=1, signal=None)
    assert cause is None or cause.lacking is None or cause.lacking < 1 << 80
