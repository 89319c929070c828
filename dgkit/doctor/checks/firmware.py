"""Firmware of BlueFields and ConnectX NICs."""
