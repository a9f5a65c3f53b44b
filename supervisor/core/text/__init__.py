"""Words that people read and write: foreign text made safe to show, units, near names, log levels and floods."""
