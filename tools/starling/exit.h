#pragma once
// From errors to exit codes; the only place that knows this table (docs/design.md, section 9).

#include "core/base/result.h"

namespace starling::tools {

int exit_code(Code code);
// Prints the error as one line on stderr; returns its exit code.
int fail(const Error& error);
int fail(int code, const std::string& text);

}  // namespace starling::tools
