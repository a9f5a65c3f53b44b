"""How long tests wait for an event before they give up. It ends a test that hangs; no test is about this time."""

PATIENCE = 240.0  # seconds: enough for a machine whose cores are all busy with other things
