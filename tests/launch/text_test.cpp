#include "tools/launch/text.h"

#include <doctest/doctest.h>

namespace starling::tools {
namespace {

// Goal: what a user says cannot become part of a template. Method: a field in a field.
TEST_CASE("text: what is put into a template is not looked at again") {
  CHECK(fill("a {{x}} b {{y}}{{x}}", {{"x", "{{y}}"}, {"y", ""}}) == "a {{y}} b {{y}}");
}

// Goal: a shell takes each word as it is (launch_test.py asks a shell).
TEST_CASE("text: a word of a shell is quoted where it has to be") {
  CHECK(shell_word("/a/b-c_d.toml") == "/a/b-c_d.toml");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("a b") == "'a b'");
  CHECK(shell_word("$(x)`y`\"") == "'$(x)`y`\"'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("~/x") == "'~/x'");
}

// Goal: systemd takes each word as it is: neither a specifier, nor a variable, nor two words.
TEST_CASE("text: a word of a unit is quoted where it has to be") {
  CHECK(systemd_word("/a/b-c_d.toml") == "/a/b-c_d.toml");
  CHECK(systemd_word("") == "\"\"");
  CHECK(systemd_word("a b") == "\"a b\"");
  CHECK(systemd_word("100%i $x \"\\") == "\"100%%i $$x \\\"\\\\\"");
}

// Goal: a text that would break a line is refused, and the error is one line.
TEST_CASE("text: lines have no control characters, and names only what is named") {
  CHECK(check_line("x", "a b $"));
  for (const char* text : {"a\nb", "a\tb", "a\rb", "\x7f"}) {
    const auto line = check_line("--data", text);
    REQUIRE(!line);
    CHECK(line.error().text().find("--data has a control character") == 0);
    CHECK(line.error().text().find('\n') == std::string::npos);
  }
  CHECK(check_name("x", "a-1", "-"));
  for (const char* name : {"", "a b", "a\nb", "a_b", "-a", "a;b", "a$b", "\xc3\xa4"})
    CHECK_MESSAGE(!check_name("x", name, "-"), name);
  CHECK(check_name("x", std::string(63, 'a'), ""));
  CHECK(!check_name("x", std::string(64, 'a'), ""));
}

}  // namespace
}  // namespace starling::tools
