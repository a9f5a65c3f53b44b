"""The command line: one module for each verb, which talks to the daemon over REST."""
