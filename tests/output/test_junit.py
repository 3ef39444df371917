"""JUnit XML, whole documents compared."""

from __future__ import annotations

from commbench.output.junit import FAILURE, SKIPPED, JUnitCase, JUnitSuite, junit_xml


def test_a_document_counts_its_cases_and_holds_their_messages() -> None:
    suites = [
        JUnitSuite(
            "first",
            [
                JUnitCase("good", seconds=0.25),
                JUnitCase("said", message="1.0 < 2.0"),
                JUnitCase("bad", FAILURE, "3.0 > \x1b2.0", "fail", 0.5),
                JUnitCase("left out", SKIPPED, "no baseline"),
            ],
        ),
        JUnitSuite("second", [], seconds=1.5),
    ]
    assert junit_xml(suites, "all").decode() == (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        '<testsuites name="all" tests="4" failures="1" errors="0" skipped="1" time="2.250">\n'
        '  <testsuite name="first" tests="4" failures="1" errors="0" skipped="1" time="0.750">\n'
        '    <testcase name="good" classname="first" time="0.250" />\n'
        '    <testcase name="said" classname="first" time="0.000">\n'
        "      <system-out>1.0 &lt; 2.0</system-out>\n"
        "    </testcase>\n"
        '    <testcase name="bad" classname="first" time="0.500">\n'
        '      <failure message="3.0 &gt;  2.0" type="fail">3.0 &gt;  2.0</failure>\n'
        "    </testcase>\n"
        '    <testcase name="left out" classname="first" time="0.000">\n'
        '      <skipped message="no baseline" />\n'
        "    </testcase>\n"
        "  </testsuite>\n"
        '  <testsuite name="second" tests="0" failures="0" errors="0" skipped="0" time="1.500" />\n'
        "</testsuites>\n"
    )
