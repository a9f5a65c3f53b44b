"""Regular expressions as grammars: what they become, and which ones cannot."""

from __future__ import annotations

import pytest

from supervisor.core.params.regex import MOST_ELEMENTS, NotRegular, grammar_of

WRITTEN: tuple[tuple[str, str], ...] = (
    ("", '""'),
    ("abc", '"abc"'),
    ("^abc$", '"abc"'),
    (r"\Aabc\Z", '"abc"'),
    ("^a$|^b$", '"a" | "b"'),
    ("ab*c+d?", '"a" "b"* "c"+ "d"?'),
    ("ab*?", '"a" "b"*'),
    ("a{3}b{2,}c{1,4}d{,2}e{1}f{0}", '"a"{3} "b"{2,} "c"{1,4} "d"{0,2} "e"{1} ""'),
    ("a{x}", '"a{x}"'),
    ("(a|bc)d", '("a" | "bc") "d"'),
    ("(?:a)(?P<n>b)(?<m>c)", '("a") ("b") ("c")'),
    ("a|", '"a" | ""'),
    (".", r"[^\n]"),
    (r"\d\w\s", r"[0-9] [a-zA-Z0-9_] [ \t\n\r\x0B\x0C]"),
    (r"\D", "[^0-9]"),
    (r"[a-z\d_-]", r"[a-z0-9\x5F\x2D]"),
    (r"[^]a]", r"[^\x5Da]"),
    (r"[+-]", r"[\x2B\x2D]"),
    (r"[\]\\\-]", r"[\x5D\x5C\x2D]"),
    (r"\.\\\x41\u00e9\n", r'".\x5CA\U000000E9\x0A"'),
    ('say "hi"', r'"say \x22hi\x22"'),
    ("é", r'"\U000000E9"'),
)


@pytest.mark.parametrize(("pattern", "grammar"), WRITTEN, ids=[repr(one[0]) for one in WRITTEN])
def test_a_regular_pattern_becomes_a_grammar(pattern: str, grammar: str) -> None:
    assert grammar_of(pattern) == f"root ::= {grammar}\n"


REFUSED: tuple[tuple[str, str], ...] = (
    ("(?=a)", "looks around"),
    ("(?!a)", "looks around"),
    ("(?<=a)b", "looks around"),
    ("(?i)a", "flags"),
    ("(?P=n)", "reference"),
    (r"(a)\1", r"has \1"),
    (r"\bword\b", r"has \b"),
    (r"\p{L}", r"has \p"),
    (r"[\W]", r"has \W in a class"),
    ("a^b", "has ^ inside"),
    ("a$b", "has $ inside"),
    ("(^a)", "has ^ inside"),
    ("*a", "nothing to repeat"),
    ("a**", "two repetitions"),
    ("a{2}{3}", "two repetitions"),
    ("a++", "possessive"),
    ("a{3,2}", "end is before"),
    ("(a", "not closed"),
    ("a)", "unbalanced"),
    ("[a", "not closed"),
    ("[a-", "not closed"),
    ("[]", "not closed"),
    ("[z-a]", "ends before it begins"),
    ("\\", "has \\"),
    ("(a*)*", "may be empty"),
    ("(a?|b)+", "may be empty"),
    ("a{1001}", "written out"),
    ("(a{100}){11}", "written out"),
    ("(a{1000}){0,0}{9}", "two repetitions"),
    ("a{" + "9" * 500 + "}", "written out"),
    ("a?" * 101, "may be left out"),
    ("(a?){101}", "may be left out"),
    ("((a?){20}){20}", "may be left out"),
    ("(a*b?){51}", "may be left out"),
    ("(a?|b*){51}", "may be left out"),
    ("(()){101}", "may be left out"),
    ("a" * 1001, "longer than"),
    ("(" * 40 + ")" * 40, "inside each other"),
    ("\ud83d", "half a character"),
    (r"\UFFFFFFFF", "no character"),
)


@pytest.mark.parametrize(("pattern", "why"), REFUSED, ids=[repr(one[0][:20]) for one in REFUSED])
def test_what_is_not_regular_or_too_large_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(NotRegular) as refused:
        grammar_of(pattern)
    assert why in str(refused.value)


def test_the_largest_grammar_is_taken() -> None:
    assert grammar_of(f"a{{{MOST_ELEMENTS}}}") == f'root ::= "a"{{{MOST_ELEMENTS}}}\n'


@pytest.mark.parametrize("pattern", ["a?" * 100, "(a?){100}", "((a?){10}){10}", "a{0,1000}", "(a{0,10}b){90}"])
def test_what_may_be_left_out_is_counted_as_an_engine_follows_it(pattern: str) -> None:
    assert grammar_of(pattern)


def test_the_page_names_the_largest_repetition() -> None:
    assert grammar_of("(ab){500}") == 'root ::= ("ab"){500}\n'
    with pytest.raises(NotRegular):
        grammar_of("(ab){501}")
