"""Asking the machine: drivers, the engine, the system. What the texts mean is `core/devices`' business."""
