"""The formats that problems can be reported in."""

from __future__ import annotations

from wdspec.cli.reports.checked_spec import Report
from wdspec.cli.reports.document_reports import json_report, junit_report, sarif_report
from wdspec.cli.reports.line_reports import github_report, text_report

REPORTS: dict[str, Report] = {
    "text": text_report,
    "json": json_report,
    "github": github_report,
    "sarif": sarif_report,
    "junit": junit_report,
}
