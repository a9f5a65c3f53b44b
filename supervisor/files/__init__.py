"""Read model files on disk: a path and its shards, folders of models, projectors beside them, remembered headers."""
