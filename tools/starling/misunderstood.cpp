#include "tools/starling/misunderstood.h"

#include <utility>

#include "core/base/nearest.h"

namespace starling::tools {
namespace {

// Other programs use these words for a subcommand.
constexpr std::pair<const char*, const char*> kSubcommands[] = {
    {"train", "run"},   {"fit", "run"},        {"start", "run"},    {"submit", "launch"},
    {"join", "worker"}, {"validate", "check"}, {"verify", "audit"}, {"keygen", "keys"},
};
constexpr std::pair<const char*, const char*> kOptions[] = {
    {"--nproc", "--workers"}, {"--nproc-per-node", "--workers"},  {"--num-workers", "--workers"},
    {"--output", "--out"},    {"--output-dir", "--out"},          {"--max-steps", "--steps"},
    {"--lr", "--peak-rate"},  {"--learning-rate", "--peak-rate"}, {"--verbose", "--log"},
};

template <class Table>
std::string synonym(const Table& table, const std::string& word) {
  for (const auto& [theirs, ours] : table)
    if (theirs == word) return ours;
  return {};
}

std::string first_of(const std::vector<std::string>& known) {
  std::string all;
  for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
  return all;
}

bool among(const std::string& word, const std::vector<std::string>& known) {
  for (const std::string& k : known)
    if (k == word) return true;
  return false;
}

}  // namespace

std::string unknown_subcommand(const std::string& word, const std::vector<std::string>& known) {
  if (word == "bench") return "benchmarks are a program of their own, starling-bench";
  std::string meant = synonym(kSubcommands, word);
  for (const auto& [theirs, ours] : kSubcommands)  // "trian"
    if (meant.empty() && nearest(word, {theirs}) == theirs && word.size() > 3 &&
        nearest(word, known).empty())
      meant = ours;
  if (meant.empty()) meant = nearest(word, known);
  const std::string what = "unknown subcommand " + word + "; ";
  if (!meant.empty()) return what + "did you mean " + meant + "?";
  return what + "there are " + first_of(known);
}

std::string unknown_option(const std::string& word, const std::string& program,
                           const std::string& subcommand, const std::vector<std::string>& options,
                           const std::string& script) {
  const std::string name = word.substr(0, word.find('='));
  std::string meant = synonym(kOptions, name);
  if (meant.empty() || !among(meant, options)) meant = nearest(name, options);
  std::string what = "unknown option " + name + " of " + subcommand + "; ";
  if (!script.empty()) {
    what += "arguments of the script follow --, as in " + program + " " + subcommand + " .. " +
            script + " -- " + name;
    return what + (meant.empty() ? "" : "; or did you mean " + meant + "?");
  }
  if (!meant.empty()) return what + "did you mean " + meant + "?";
  return what + program + " " + subcommand + " --help lists what there is";
}

}  // namespace starling::tools
