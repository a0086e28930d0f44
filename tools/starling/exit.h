#pragma once
// From errors to exit codes (core/base/exit.h; docs/design.md, section 9).

#include "core/base/result.h"

namespace starling::tools {

int exit_code(Code code);
// Prints the error as one line on stderr; returns its exit code.
int fail(const Error& error);
int fail(int code, const std::string& text);
// From here on each line of fail() goes there as well, its exit code before it (last_words.h).
void fail_into(int fd);
// Writes out what was printed. Its result is `code`, or 2 with a line on stderr where a command that
// ends well has printed lines that are lost. A reader that closes its end of a pipe wants no more.
int end_of_output(int code);
// What is thrown and caught nowhere is one line, too: memory that is not to be had (3), or a bug
// (5).
void end_with_a_line_on_exceptions();

}  // namespace starling::tools
