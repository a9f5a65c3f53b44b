"""Text from elsewhere: safe to show, similar names, units, log levels, floods of lines, JSON of other programs."""
