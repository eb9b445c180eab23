"""Pure arithmetic: who reads what, when. No I/O, no torch; printable and comparable."""
