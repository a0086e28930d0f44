#include "tools/starling/command_line.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/base/exit.h"
#include "core/observe/line_format.h"
#include "tools/starling/misunderstood.h"

namespace starling::tools {
namespace {

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  return names;
}

// Says in one line what was wrong.
std::string misunderstood(const CLI::App& app, const std::string& program,
                          const CLI::ParseError& error, const std::vector<std::string>& words) {
  const std::vector<std::string> known = subcommands_of(app);
  if (app.get_subcommands().empty()) {
    const std::string word = words.empty() ? "" : words.front();
    if (!word.empty() && word.front() != '-') return unknown_subcommand(word, known);
    std::string all;
    for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
    if (word.empty())
      return "which subcommand? " + all + "; " + program + " help SUBCOMMAND says more";
    return "unknown option " + word + ", expected a subcommand: " + all;
  }
  const CLI::App* sub = app.get_subcommands().front();
  const std::string command = program + " " + sub->get_name();
  std::string script;
  for (std::size_t i = 1; i < words.size(); ++i)
    if (words[i].ends_with(".py") && script.empty()) script = words[i];
  for (const std::string& extra : sub->remaining()) {
    if (extra.empty() || extra.front() != '-') continue;
    std::vector<std::string> options;
    for (const CLI::Option* option : sub->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    return unknown_option(extra, program, sub->get_name(), options, script);
  }
  if (const auto rest = sub->remaining(); !rest.empty() && !script.empty())
    return "unknown word " + rest.front() + "; arguments of the script follow --, as in " +
           command + " .. " + script + " -- " + rest.front();
  if (const auto rest = sub->remaining(); !rest.empty())
    return "the word " + rest.front() + " is one too many; " + command +
           " --help lists what there is";
  std::string what = error.what();
  if (what.starts_with(": ")) what.erase(0, 2);  // of an option that help leaves out
  return what + "; " + command + " --help lists what there is";
}

using OrderedJson = nlohmann::ordered_json;

OrderedJson described(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return {{"names", names},
          {"positional", option.get_positional() ? option.get_name() : ""},
          {"value", option.get_items_expected_max() > 0 ? option.get_type_name() : ""},
          {"default", option.get_default_str()},
          {"required", option.get_required()},
          {"text", option.get_description()}};
}

// Describes what --help shows, for programs: man pages and completions of shells are made of it.
OrderedJson described(const CLI::App& app) {
  OrderedJson options = OrderedJson::array(), subcommands = OrderedJson::array();
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) options.push_back(described(*option));
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (!sub->get_name().empty()) {
      subcommands.push_back(described(*sub));
      continue;
    }
    // A group of options, of which one is wanted: they are options of `app`.
    const OrderedJson group = described(*sub);
    for (const OrderedJson& option : group["options"])
      if (option["names"] != options.front()["names"]) options.push_back(option);
  }
  return {{"name", app.get_name()},
          {"text", app.get_description()},
          {"options", options},
          {"subcommands", subcommands},
          {"footer", app.get_footer()}};
}

}  // namespace

const CLI::Validator kWhole(
    [](std::string& text) {
      const bool whole = !text.empty() && text.size() < 20 &&
                         text.find_first_not_of("0123456789") == std::string::npos;
      return whole ? std::string() : "must be a whole number, 0 or more, is " + text;
    },
    "NUMBER", "whole");

const CLI::Validator kNamed(
    [](std::string& text) { return text.empty() ? "must be a name, is empty" : std::string(); },
    "NAME", "named");

CLI::App* subcommand(CLI::App& app, const char* name, const char* what,
                     const std::string& example) {
  CLI::App* sub = app.add_subcommand(name, what);
  std::string text = "\n  " + example;
  // A program with Starling in it has the subcommands under its own name.
  const std::string before = "\n  starling ", own = "\n  " + app.get_name() + " ";
  for (auto at = text.find(before); !app.get_name().empty() && at != std::string::npos;
       at = text.find(before, at + own.size()))
    text.replace(at, before.size(), own);
  sub->footer("\nExample:" + text);
  return sub;
}

std::optional<int> parse(CLI::App& app, const std::string& program,
                         std::vector<std::string> words) {
  if (words == std::vector<std::string>{"help", "--json"}) {
    std::printf("%s\n", described(app).dump(2).c_str());
    return 0;
  }
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.resize(std::min<std::size_t>(words.size(), 1));
    // CLI11 would show the help of the whole program for a word that it does not know.
    const auto known = subcommands_of(app);
    if (!words.empty() && !words[0].starts_with('-') &&
        std::find(known.begin(), known.end(), words[0]) == known.end()) {
      write_line(LogLevel::kError, program + ": ", unknown_subcommand(words[0], known));
      return kExitBadInput;
    }
    words.push_back("--help");
  }
  try {
    app.parse(
        std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    write_line(LogLevel::kError, program + ": ", misunderstood(app, program, error, words));
    return kExitBadInput;
  }
  return std::nullopt;
}

}  // namespace starling::tools
