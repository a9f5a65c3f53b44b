"""What each kind of child gets of our environment: what it needs, and no secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from supervisor.core.environment import for_builds, for_downloads, for_engines, for_python, is_secret

Choice = Callable[[Mapping[str, str]], dict[str, str]]

SECRETS = (
    *("SUPERVISOR_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "LLAMA_API_KEY"),
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "NVIDIA_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_PAT", "NPM_TOKEN", "PGPASSWORD", "DB_PASSWORD", "UV_INDEX_MINE_PASSWORD"),
    *("LLAMA_CLOUD_API_KEY", "INTEL_SECRET", "AMD_CREDENTIALS", "UR_TOKEN", "llama_api_key", "PYTHON_KEYRING_PASS"),
)
SYSTEM = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_ALL", "TZ", "TERM", "TMPDIR", "TEMP", "TMP"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "MALLOC_ARENA_MAX"),
    *("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_DATA_DIRS"),
    *("SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "APPDATA", "LOCALAPPDATA", "ProgramData"),
    *("ProgramFiles", "USERPROFILE", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
ENGINES = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_CACHE_PATH", "NVIDIA_VISIBLE_DEVICES", "NCCL_P2P_DISABLE"),
    *("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "GGML_VK_VISIBLE_DEVICES", "GGML_OPENVINO_FULL_GRAPH_KEY", "LLAMA_CACHE"),
    *("HIP_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "ROCR_VISIBLE_DEVICES", "ROCBLAS_TENSILE_LIBPATH"),
    *("ZE_AFFINITY_MASK", "ZES_ENABLE_SYSMAN", "SYCL_CACHE_PERSISTENT", "ONEAPI_DEVICE_SELECTOR", "MKL_NUM_THREADS"),
    *("VK_ICD_FILENAMES", "VK_DRIVER_FILES", "MESA_VK_DEVICE_SELECT", "RADV_PERFTEST", "AMDVLK_ENABLE", "DRI_PRIME"),
    *("__NV_PRIME_RENDER_OFFLOAD", "__GL_SHADER_DISK_CACHE", "CUBLAS_WORKSPACE_CONFIG", "ANV_DEBUG", "NVK_DEBUG"),
    *("OPENVINO_LOG_LEVEL", "OCL_ICD_VENDORS", "POCL_CACHE_DIR", "UR_LOG_LOADER", "IGC_ShaderDumpEnable"),
    *("MUSA_VISIBLE_DEVICES", "MTL_DEBUG_LAYER", "ACL_DEVICE_ID", "HEXAGON_SDK_ROOT", "UCX_TLS", "ROCM_PATH"),
    *("OMP_NUM_THREADS", "GOMP_CPU_AFFINITY", "KMP_BLOCKTIME", "OPENBLAS_NUM_THREADS", "ASCEND_HOME_PATH"),
)
PYTHON = ("PYTHONPATH", "PYTHONUTF8", "VIRTUAL_ENV")
DOWNLOADS = (
    *("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "HTTPS_PROXY", "https_proxy"),
    *("no_proxy", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"),
)
BUILDS = (
    *(
        "CC",
        "CXX",
        "CFLAGS",
        "CMAKE_PREFIX_PATH",
        "NIX_CFLAGS_COMPILE",
        "PKG_CONFIG_PATH",
        "CCACHE_DIR",
        "PIP_INDEX_URL",
    ),
    *("HTTPS_PROXY", "SSH_AUTH_SOCK", "CONDA_PREFIX"),
)
CHOICES: dict[Choice, tuple[str, ...]] = {
    for_engines: (*SYSTEM, *ENGINES),
    for_python: (*SYSTEM, *ENGINES, *PYTHON),
    for_downloads: (*SYSTEM, *PYTHON, *DOWNLOADS),
    for_builds: (*SYSTEM, *ENGINES[:3], *PYTHON, *BUILDS),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_needed_comes_along(choice: Choice) -> None:
    given = {name: f"value of {name}" for name in CHOICES[choice]}
    assert choice(given) == given


@pytest.mark.parametrize("choice", CHOICES)
def test_no_secret_comes_along(choice: Choice) -> None:
    assert choice(dict.fromkeys(SECRETS, "secret")) == {}


@pytest.mark.parametrize("choice", [for_engines, for_python, for_downloads])
def test_what_is_on_no_list_stays_behind(choice: Choice) -> None:
    unknown = ("SSH_AUTH_SOCK", "EDITOR", "MY_COMPANY_LOGIN", "SUPERVISOR_HOME", "KUBECONFIG", "DATABASE_URL")
    assert choice(dict.fromkeys(unknown, "x")) == {}


@pytest.mark.parametrize("name", ["KEYBOARD", "MONKEY", "TOKENIZERS_PARALLELISM", "COMPASS", "PATH", "MKL_NUM_THREADS"])
def test_a_name_that_only_sounds_alike_is_no_secret(name: str) -> None:
    assert not is_secret(name)
