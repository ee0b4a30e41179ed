"""Prints a table of the damaged files that were read, also those read by other processes of pytest-xdist."""

from mutations import Result, table


def pytest_terminal_summary(terminalreporter):
    results = [
        Result(**entry)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, entries in report.user_properties
        if name == "damaged files"
        for entry in entries
    ]
    if results:
        terminalreporter.write_sep("=", "damaged and hostile files")
        terminalreporter.write_line(table(results))
