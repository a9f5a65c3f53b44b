"""Ask the machine: drivers, the engine, the system. `core/devices` interprets the texts."""
