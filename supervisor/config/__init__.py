"""The configuration: one YAML file and a few environment variables, validated whole."""

from supervisor.config.load import find_config, load_settings
from supervisor.config.settings import EngineSettings, ModelSettings, ServerSettings, Settings

__all__ = ["EngineSettings", "ModelSettings", "ServerSettings", "Settings", "find_config", "load_settings"]
