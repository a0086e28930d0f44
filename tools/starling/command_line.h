#pragma once
// CommandLine holds what the command lines of `starling` and `starling-bench` have in common. CLI11
// takes six seconds to compile: include this where options are declared, and nowhere else.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace starling::tools {

// Refuses what CLI11 reads as another number: a negative or a fractional one.
extern const CLI::Validator kWhole;
// Refuses an empty name, as of a variable of a unit file that is not set.
extern const CLI::Validator kNamed;

// Adds a subcommand with "Example:" below its options, as each has it.
CLI::App* subcommand(CLI::App& app, const char* name, const char* what, const std::string& example);

// Parses the words behind the program's name; "help NAME" is "NAME --help", and "help --json" prints all subcommands
// with their options as one JSON object. Returns an exit code if the program ends here: 0 after help, 2 after one line
// on stderr that says what was wrong.
std::optional<int> parse(CLI::App& app, const std::string& program, std::vector<std::string> words);

}  // namespace starling::tools
