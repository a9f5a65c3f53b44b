"""Read the configuration, one YAML file and a few environment variables, and validate it as a whole."""

from supervisor.config.load import find_config, load_settings
from supervisor.config.settings import EngineSettings, ModelSettings, ServerSettings, Settings

__all__ = ["EngineSettings", "ModelSettings", "ServerSettings", "Settings", "find_config", "load_settings"]
