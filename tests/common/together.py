"""Try several cases in one test, and name each that fails."""

import pytest


def check_all(check, cases):
    """Call `check` with each of the cases, a dict by name.

    A test for each would take longer to collect and to report than most checks take. A check must not skip.
    """
    errors = {}
    for name, case in cases.items():
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            errors[name] = error
    if errors:
        name, first = next(iter(errors.items()))
        raise AssertionError(f"{', '.join(map(str, errors))}; of {name}: {first}") from first
