"""Text from elsewhere: made safe to show, near names, units, log levels and floods; JSON that others wrote."""
