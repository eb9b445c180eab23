"""Problems as people, editors, CI systems and dashboards read them: one file a format.

Files with their problems go in, as they are checked; pieces of text come out. `report_formats.py` has the table.
"""
