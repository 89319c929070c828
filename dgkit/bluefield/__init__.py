# SPDX-License-Identifier: Apache-2.0
"""A host's BlueField over SSH: set up, taken down, measured, and a report of it.

arm.py is the connection, card.py what the host sees of the card, pack.py the wheels, setup.py the
steps of `dgkit bluefield up`, transfers.py the first transfers, archive.py the report.
"""
