#pragma once
// What is said of a command line that is not understood: what was probably meant.

#include <string>
#include <vector>

namespace starling::tools {

// "unknown subcommand trian; did you mean run?"
std::string unknown_subcommand(const std::string& word, const std::vector<std::string>& known);
// `options` as they are written, "--workers". "unknown option --worker of run; did you mean
// --workers?" `script`: the one that the command line names, whose own options it may be; empty: none.
std::string unknown_option(const std::string& word, const std::string& subcommand,
                           const std::vector<std::string>& options, const std::string& script);

}  // namespace starling::tools
