#pragma once
// From errors to exit codes (core/base/exit.h; docs/design.md, section 9).

#include "core/base/result.h"

namespace starling::tools {

int exit_code(Code code);
// Prints the error as one line on stderr; returns its exit code.
int fail(const Error& error);
int fail(int code, const std::string& text);
// What is thrown and caught nowhere is one line, too: memory that is not to be had (3), or a bug
// (5).
void end_with_a_line_on_exceptions();

}  // namespace starling::tools
