#pragma once
// These turn errors into exit codes (core/base/exit.h; docs/design.md, section 9).

#include "core/base/result.h"

namespace starling::tools {

int exit_code(Code code);
// Prints the error as one line on stderr; returns its exit code.
int fail(const Error& error);
int fail(int code, const std::string& text);
// Sends each later line of fail() there as well, after its exit code (last_words.h).
void fail_into(int fd);
// Flushes printed output. Returns `code`, or 2 with a line on stderr where a command that
// ends well has lost printed lines. A reader that closes its end of a pipe wants no more.
int end_of_output(int code);
// Makes an uncaught exception one line,
// too: a lack of memory (3), or a bug (5).
void end_with_a_line_on_exceptions();

}  // namespace starling::tools
