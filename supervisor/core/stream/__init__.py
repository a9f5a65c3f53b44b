"""Handle the streams that engines answer with: cut events out, relay them by API, fold them into one object."""
