#pragma once
// These answer a command line that is not understood with what was probably meant.

#include <string>
#include <vector>

namespace starling::tools {

// Returns "unknown subcommand trian; did you mean run?"
std::string unknown_subcommand(const std::string& word, const std::vector<std::string>& known);
// Returns "unknown option --worker of run; did you mean --workers?" `options` as they are
// written, "--workers". `script`: the one on the command line, which may own it; empty: none.
std::string unknown_option(const std::string& word, const std::string& program,
                           const std::string& subcommand, const std::vector<std::string>& options,
                           const std::string& script);

}  // namespace starling::tools
