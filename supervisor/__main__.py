"""`python -m supervisor`."""

from supervisor.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
