"""Makes a release: `bin/release VERSION`. Publishing it is a person's act."""
