#include "elastic/membership/fingerprint.h"

#include <array>
#include <string_view>
#include <vector>

namespace starling::elastic {
namespace {

struct Part {
  std::string_view name, meaning;
};
// A part that explains others comes before them.
constexpr std::array kParts = {
    Part{"isa", "another instruction set, or another version of what computes"},
    Part{"script", ""},  // meaning_of_script()
    // The digest of a script's data is of its held-out data too, and theirs is 0.
    Part{"data", "other data or held-out data, or other values of what a script does not train"},
    Part{"held-out data", "other held-out data"},
    Part{
        "weights",
        "other first parameters: other files of [model].from, another build(), or another library"},
    Part{"first gradient",
         "another script or other data, or a processor or library that computes otherwise"},
    Part{"probe of steps", "the update is computed otherwise: another build or processor"},
    Part{"starling", "another build of this program"},
};

// Cuts a text at the names of kParts; empty where it has none. A part ends at the next name.
std::array<std::string_view, kParts.size()> split(std::string_view text) {
  std::array<std::string_view, kParts.size()> values;
  std::string_view* open = nullptr;
  const char* begin = text.data();
  const auto close = [&](const char* end) {
    if (open != nullptr) *open = {begin, static_cast<std::size_t>(end - begin)};
  };
  for (std::size_t at = 0; at < text.size();) {
    for (std::size_t i = 0; i < kParts.size(); ++i) {
      const std::string_view rest = text.substr(at);
      if (!rest.starts_with(kParts[i].name) || rest.substr(kParts[i].name.size(), 1) != " ")
        continue;
      if (at > 0) close(text.data() + at - 2);
      open = &values[i];
      begin = rest.data() + kParts[i].name.size() + 1;
      break;
    }
    const auto comma = text.find(", ", at);
    at = comma == std::string_view::npos ? text.size() : comma + 2;
  }
  close(text.data() + text.size());
  return values;
}

// The script's own text stands before the stroke, that of modules beside it behind.
std::string_view meaning_of_script(std::string_view here, std::string_view there) {
  const auto stroke = here.find('/'), other = there.find('/');
  if (stroke == std::string_view::npos || other == std::string_view::npos)
    return "another text of the script, or other modules beside it, or other texts of them";
  const bool own = here.substr(0, stroke) != there.substr(0, other);
  const bool modules = here.substr(stroke) != there.substr(other);
  if (own && modules) return "another text of the script itself, and of modules beside it";
  return own ? "another text of the script itself"
             : "other modules beside the script, or other texts of them";
}

constexpr std::size_t kScript = 1;
static_assert(kParts[kScript].name == "script");

}  // namespace

bool other_script(const std::string& here, const std::string& there) {
  const auto mine = split(here), theirs = split(there);
  return !mine[kScript].empty() && !theirs[kScript].empty() && mine[kScript] != theirs[kScript];
}

bool other_modules_alone(const std::string& here, const std::string& there) {
  if (!other_script(here, there)) return false;
  const std::string_view mine = split(here)[kScript], theirs = split(there)[kScript];
  const auto stroke = mine.find('/');
  return stroke != std::string_view::npos &&
         mine.substr(0, stroke + 1) == theirs.substr(0, stroke + 1);
}

std::string fingerprint_differences(const std::string& here, const std::string& there) {
  const auto mine = split(here), theirs = split(there);
  const auto shown = [](std::string_view value) {
    return value.empty() ? std::string("none") : std::string(value);
  };
  std::string text;
  std::string_view meaning;
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    if (mine[i] == theirs[i]) continue;
    if (meaning.empty())
      meaning =
          kParts[i].name == "script" ? meaning_of_script(mine[i], theirs[i]) : kParts[i].meaning;
    text += (text.empty() ? "" : "; ") + std::string(kParts[i].name) + " " + shown(mine[i]) +
            " here, " + shown(theirs[i]) + " there";
  }
  if (text.empty()) return "the loss of the first micro-batch; all else is equal, " + here;
  return text + ": " + std::string(meaning);
}

bool other_script_alone(const std::string& here, const std::string& there) {
  const auto mine = split(here), theirs = split(there);
  bool other_script = false;
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    const auto& [name, meaning] = kParts[i];
    const bool equal = mine[i] == theirs[i];
    if (name == "isa" || name == "starling") continue;  // for people, not compared
    if (name == "held-out data" && equal) continue;     // not every job has them
    if (mine[i].empty() || theirs[i].empty()) return false;
    if (name == "script")
      other_script = !equal;
    else if (!equal)
      return false;
  }
  return other_script;
}

}  // namespace starling::elastic
