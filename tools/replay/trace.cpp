#include "tools/replay/trace.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "core/base/file_system.h"
#include "core/base/philox.h"

namespace starling::replay {
namespace {

constexpr std::size_t kNameMax = 64;

Error bad(std::size_t line, const std::string& what) {
  return Error(Code::kBadInput, what + "; line " + std::to_string(line));
}

std::string quoted(std::string_view text) {
  std::string out(1, '"');
  return out.append(text.substr(0, kNameMax)).append(1, '"');
}

std::optional<std::uint64_t> whole_number(std::string_view text, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t at = 0;;) {
    const auto comma = line.find(',', at);
    fields.push_back(line.substr(at, comma - at));
    if (comma == std::string_view::npos) return fields;
    at = comma + 1;
  }
}

class Reader {
 public:
  explicit Reader(std::uint64_t seed) : seed_(seed) {}

  Result<> line(std::size_t number, std::string_view text) {
    const auto fields = fields_of(text);
    if (fields.size() != 2 && fields.size() != 3)
      return bad(number, "expected time_ms,add|remove,node or time_ms,count, is " + quoted(text));
    if (fields_ != 0 && fields_ != fields.size())
      return bad(number, "the lines before are of the other form: one form a file");
    fields_ = fields.size();
    const auto at_ms = whole_number(fields[0], kTraceMsMax);
    if (!at_ms)
      return bad(number, "time_ms must be an integer from 0 to " + std::to_string(kTraceMsMax) +
                             ", is " + quoted(fields[0]));
    if (!trace_.changes.empty() && *at_ms < trace_.changes.back().at_ms)
      return bad(number, "time_ms goes back from " + std::to_string(trace_.changes.back().at_ms) +
                             " to " + std::to_string(*at_ms));
    if (trace_.changes.empty() || trace_.changes.back().at_ms != *at_ms)
      trace_.changes.push_back({*at_ms, {}, {}});
    return fields_ == 3 ? named(number, fields[1], fields[2]) : counted(number, fields[1]);
  }

  Result<Trace> finish() {
    if (trace_.changes.empty())
      return Error(Code::kBadInput, "a trace has at least one line, this has none");
    return std::move(trace_);
  }

 private:
  Result<> named(std::size_t number, std::string_view op, std::string_view node) {
    if (op != "add" && op != "remove")
      return bad(number, "op must be add or remove, is " + quoted(op));
    if (!is_name(node))
      return bad(number,
                 "node must be 1 to 64 letters, digits, '-', '_' or '.', is " + quoted(node));
    const std::string name(node);
    Change& change = trace_.changes.back();
    if (op == "add") {
      if (!known_.insert(name).second) return bad(number, "node " + name + " comes twice");
      if (present_.size() == kTraceNodesMax)
        return bad(number, "more than " + std::to_string(kTraceNodesMax) + " nodes at once");
      present_.push_back(name);
      change.added.push_back(name);
      return ok();
    }
    const auto it = std::find(present_.begin(), present_.end(), name);
    if (it == present_.end()) return bad(number, "node " + name + " goes and is not there");
    if (std::find(change.added.begin(), change.added.end(), name) != change.added.end())
      return bad(number, "node " + name + " comes and goes in one instant");
    present_.erase(it);
    change.removed.push_back(name);
    return ok();
  }

  Result<> counted(std::size_t number, std::string_view text) {
    const auto count = whole_number(text, kTraceNodesMax);
    if (!count)
      return bad(number, "count must be an integer from 0 to " + std::to_string(kTraceNodesMax) +
                             ", is " + quoted(text));
    Change& change = trace_.changes.back();
    if (!change.added.empty() || !change.removed.empty())
      return bad(number, "a second count for " + std::to_string(change.at_ms) + " ms");
    while (present_.size() < *count) {
      present_.push_back("instance-" + std::to_string(++came_));
      change.added.push_back(present_.back());
    }
    while (present_.size() > *count) {
      const auto gone = present_.begin() + static_cast<std::ptrdiff_t>(draw(present_.size()));
      change.removed.push_back(*gone);
      present_.erase(gone);
    }
    return ok();
  }

  std::size_t draw(std::size_t n) {
    const auto block =
        philox4x32({static_cast<std::uint32_t>(drawn_++), 0, 0, 0x74726163},
                   {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    return static_cast<std::size_t>(std::uint64_t{block[0]} * n >> 32);
  }

  const std::uint64_t seed_;
  Trace trace_;
  std::size_t fields_ = 0;            // of a line: 3 names, 2 counts, 0 not known yet
  std::vector<std::string> present_;  // in the order of their coming
  std::set<std::string> known_;
  std::uint64_t came_ = 0, drawn_ = 0;
};

void remove_from(std::vector<std::string>& names, const std::vector<std::string>& gone) {
  const std::set<std::string> set(gone.begin(), gone.end());
  std::erase_if(names, [&](const std::string& name) { return set.count(name) > 0; });
}

}  // namespace

Result<Trace> parse_trace(const std::string& text, std::uint64_t seed) {
  if (text.size() > kTraceBytesMax) return Error(Code::kBadInput, "a trace has at most 16 MiB");
  Reader reader(seed);
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    STARLING_TRY(reader.line(++number, line));
    at = end + 1;
  }
  return reader.finish();
}

Result<Trace> load_trace(const std::string& path, std::uint64_t seed) {
  STARLING_TRY(is_file(path, "a trace"));
  std::ifstream file(path, std::ios::binary);
  std::string text(kTraceBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    return Error(Code::kBadInput, "no such file or cannot be read, expected a trace; " + path);
  text.resize(static_cast<std::size_t>(file.gcount()));
  auto trace = parse_trace(text, seed);
  if (!trace) return std::move(trace).error().in("reading " + path);
  return trace;
}

std::vector<std::string> Trace::present(std::uint64_t at_ms) const {
  std::vector<std::string> there;
  for (const Change& change : changes) {
    if (change.at_ms > at_ms) break;
    remove_from(there, change.removed);
    there.insert(there.end(), change.added.begin(), change.added.end());
  }
  return there;
}

std::size_t Trace::most(std::uint64_t from_ms, std::uint64_t to_ms) const {
  std::size_t now = 0, most = 0;
  bool inside = false;
  for (const Change& change : changes) {
    if (change.at_ms > to_ms) break;
    if (change.at_ms > from_ms && !inside) inside = true, most = now;
    now += change.added.size();
    now -= change.removed.size();
    if (inside) most = std::max(most, now);
  }
  return inside ? most : now;
}

Trace thinned(const Trace& trace, std::uint32_t scale) {
  Trace thin;
  std::set<std::string> kept;
  std::uint64_t came = 0;
  for (const Change& change : trace.changes) {
    Change less{change.at_ms, {}, {}};
    for (const std::string& node : change.added)
      if (came++ % scale == 0) {
        less.added.push_back(node);
        kept.insert(node);
      }
    for (const std::string& node : change.removed)
      if (kept.count(node)) less.removed.push_back(node);
    thin.changes.push_back(std::move(less));
  }
  return thin;
}

}  // namespace starling::replay
