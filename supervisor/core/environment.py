"""Choose which variables of our own environment a child gets: by list, so that no key or token of ours is among them.

Every child has its purpose, and gets what that needs: an engine and the probes what the system, llama.cpp and the GPU
drivers read; Python helpers also what Python reads; downloads also proxies, certificates and the hub's settings. What a
compiler needs nobody can list (Nix, Conda and Spack have variables of their own): builds get everything but what is
called like a secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

# The system's own, by name; compared without regard to case, as Windows writes some of them in lower case
_SYSTEM = frozenset({
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TERM", "NO_COLOR", "TMPDIR", "TEMP", "TMP"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "GLIBC_TUNABLES"),
    *("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_DATA_DIRS"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA"),
    *("LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "USERPROFILE", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"),
})
_SYSTEM_PREFIXES = ("LC_", "MALLOC_", "MIMALLOC_")

# Variables that llama.cpp and the libraries below it read: by the names in its source, and by the vendors' manuals
_COMPUTE = frozenset({"DRI_PRIME", "ADSP_LIBRARY_PATH", "GGML_OPENVINO_FULL_GRAPH_KEY"})
_COMPUTE_PREFIXES = (
    *("GGML_", "LLAMA_", "MTMD_", "LLGUIDANCE_"),
    *("CUDA_", "CUBLAS_", "CUBLASLT_", "NCCL_", "NVIDIA_", "__NV_", "__GL_"),
    *("HIP_", "HSA_", "ROCR_", "ROCM_", "ROC_", "ROCBLAS_", "HIPBLAS_", "HIPBLASLT_", "TENSILE_", "AMD_", "GPU_"),
    *("VK_", "MESA_", "RADV_", "AMDVLK_", "ANV_", "NVK_", "RUSTICL_", "LIBGL_", "GALLIUM_"),
    *("ZE_", "ZES_", "ZET_", "SYCL_", "ONEAPI_", "UR_", "INTEL_", "IGC_", "NEO_", "ONEDNN_", "DNNL_", "MKL_"),
    *("OPENVINO_", "OV_", "OCL_", "OPENCL_", "CL_", "POCL_", "MTL_", "METAL_", "MUSA_", "MTHREADS_"),
    *("ASCEND_", "ACL_", "ZENDNN_", "SPACEMIT_", "HEXAGON_"),
    *("OMP_", "GOMP_", "KMP_", "OPENBLAS_", "BLIS_", "VECLIB_", "UCX_", "IBV_", "RDMAV_"),
)

_PYTHON_PREFIXES = ("PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX", "COV_CORE_", "COVERAGE_")
_NETWORK = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"})
_HUB = frozenset({"HF_HUB_DISABLE_IMPLICIT_TOKEN"})
_HUB_PREFIXES = ("HF_", "HUGGINGFACE_", "TRANSFORMERS_OFFLINE")

_SECRET = re.compile(
    r"(?:^|_)(?:API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASS|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|COOKIES?|PAT)(?:_|$)"
    r"|(?:TOKEN|SECRET|PASSWORD|APIKEY)S?$"
)
_OURS = "SUPERVISOR_"

MANAGERS = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"})
"""Variables with which a service manager talks to the one process that it started."""


def is_secret(name: str) -> bool:
    """Return whether a variable of this name is likely to hold a key, a token or a password."""
    return _SECRET.search(name.upper()) is not None


def for_engines(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of llama-server and the drivers' tools.

    It has variables of the system, llama.cpp and compute libraries.
    """
    return _chosen(env, _SYSTEM | _COMPUTE, (*_SYSTEM_PREFIXES, *_COMPUTE_PREFIXES))


def for_python(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a Python helper that needs no network: also what the interpreter reads."""
    return {**for_engines(env), **_chosen(env, (), _PYTHON_PREFIXES)}


def for_downloads(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the hub's client.

    It adds proxies, certificates and the hub's settings, without any token.
    """
    names, prefixes = _SYSTEM | _NETWORK | _HUB, (*_SYSTEM_PREFIXES, *_PYTHON_PREFIXES, *_HUB_PREFIXES)
    return _chosen(env, names, prefixes)


def for_builds(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of compilers, cmake, git and pip.

    It lacks our own settings, what is named like a secret, and what a service manager means for us alone.
    """
    return {name: value for name, value in env.items() if not _withheld(name)}


def _withheld(name: str) -> bool:
    return name.startswith(_OURS) or name in MANAGERS or is_secret(name)


def _chosen(env: Mapping[str, str], names: Collection[str], prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return the variables with these names, and those with a prefix that are not named like a secret."""
    return {name: value for name, value in env.items() if _wanted(name, names, prefixes)}


def _wanted(name: str, names: Collection[str], prefixes: tuple[str, ...]) -> bool:
    return name.upper() in names or (name.upper().startswith(prefixes) and not is_secret(name))
