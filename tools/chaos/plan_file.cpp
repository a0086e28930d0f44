// This file reads and writes plans as TOML.

#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/base/file_system.h"
#include "core/job/words.h"
#include "tools/chaos/plan.h"

namespace starling::chaos {
namespace {

constexpr std::size_t kFileBytesMax = 16u << 20;
constexpr std::size_t kFaultsMax = 200'000;
constexpr double kSecondsMax = 86'400 * 30;
constexpr std::size_t kNodesMax = 1000;  // of one fault
constexpr std::size_t kNameMax = 64;

// A NumberKey is a number of a fault, from 0 to its `max`.
struct NumberKey {
  const char* name;
  double Fault::*value;
  double max;
  bool FaultKind::Keys::*of_use;
};
constexpr NumberKey kNumberKeys[] = {
    {"for_s", &Fault::for_s, kSecondsMax, &FaultKind::Keys::for_s},
    {"back_s", &Fault::back_s, kSecondsMax, &FaultKind::Keys::back_s},
    {"share", &Fault::share, 0.95, &FaultKind::Keys::share},
    {"delay_s", &Fault::delay_s, 10, &FaultKind::Keys::delay_s}};

// A Reader reads one table of the file, and keeps its first error.
class Reader {
 public:
  Reader(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  template <class T>
  void integer(const char* key, T& out, std::uint64_t min, std::uint64_t max, bool needed = false) {
    const toml::node* node = find(key, needed);
    if (!node) return;
    const auto* value = node->as_integer();
    if (!value || value->get() < 0 || std::uint64_t(value->get()) < min ||
        std::uint64_t(value->get()) > max)
      return fail(key, "an integer from " + std::to_string(min) + " to " + std::to_string(max));
    out = static_cast<T>(value->get());
  }
  template <class T>
  void integer(const char* key, std::optional<T>& out, std::uint64_t min, std::uint64_t max) {
    if (!table_.contains(key)) return known(key);
    integer(key, out.emplace(), min, max);
  }
  void number(const char* key, double& out, double max, bool needed = false) {
    const toml::node* node = find(key, needed);
    if (!node) return;
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value || !(*value >= 0) || !(*value <= max))
      return fail(key, "a number from 0 to " + job_words::number_text(max));
    out = *value;
  }
  void kind(const char* key, const FaultKind*& out) {
    const toml::node* node = find(key, true);
    if (!node) return;
    const std::string word = node->is_string() ? node->as_string()->get() : "";
    auto kinds = parse_kinds(word);
    if (!kinds) return fail(key, kinds.error().text(), /*whole=*/true);
    if (kinds.value().size() != 1) return fail(key, "one kind of fault");
    out = kinds.value().front();
  }
  void names(const char* key, std::vector<std::string>& out) {
    const toml::node* node = find(key, false);
    if (!node) return;
    const toml::array* list = node->as_array();
    const auto is_name = [](const toml::node& n) {
      return n.is_string() && !n.as_string()->get().empty() &&
             n.as_string()->get().size() <= kNameMax && plain(n.as_string()->get());
    };
    if (!list || list->size() > kNodesMax || !std::all_of(list->begin(), list->end(), is_name))
      return fail(key, "a list of at most " + std::to_string(kNodesMax) +
                           " names of letters, digits, '-', '_' and '.'");
    for (const toml::node& n : *list) out.push_back(n.as_string()->get());
  }
  void known(const char* key) { known_.push_back(key); }
  // Refuses the key in a fault of this kind if the kind has no use for it.
  void only_if(bool of_use, const char* key, const FaultKind& kind) {
    if (!of_use && failure_.empty() && table_.contains(key))
      failure_ = std::string(key) + " is of no use to a fault of kind " + kind.word;
  }

  Result<> finish() {
    for (const auto& [key, node] : table_) {
      if (failure_.empty() &&
          std::find(known_.begin(), known_.end(), std::string(key.str())) == known_.end()) {
        failure_ = "unknown key `" + std::string(key.str()).substr(0, 64) + "`, known are";
        for (const auto& k : known_) failure_ += " " + k;
      }
    }
    if (failure_.empty()) return ok();
    return Error(Code::kBadInput, failure_ + "; " + where_);
  }

 private:
  const toml::node* find(const char* key, bool needed) {
    known(key);
    const toml::node* node = table_.get(key);
    if (!node && needed && failure_.empty()) failure_ = std::string(key) + " is missing";
    return node;
  }
  static bool plain(const std::string& name) {
    return std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '-' || c == '_' || c == '.';
    });
  }
  void fail(const char* key, const std::string& what, bool whole = false) {
    if (failure_.empty()) failure_ = whole ? what : std::string(key) + " must be " + what;
  }

  const toml::table& table_;
  const std::string where_;
  std::vector<std::string> known_;
  std::string failure_;
};

std::string place(const toml::node& node, const std::string& name) {
  return name + ", line " + std::to_string(node.source().begin.line);
}

Result<Fault> read_fault(const toml::node& node) {
  const std::string where = place(node, "[[fault]]");
  if (!node.is_table()) return Error(Code::kBadInput, "a fault must be a table; " + where);
  Fault fault;
  Reader reader(*node.as_table(), where);
  reader.number("at_s", fault.at_s, kSecondsMax, true);
  reader.kind("kind", fault.kind);
  const FaultKind::Keys& keys = fault.kind->keys;
  fault.count = keys.count_min;
  reader.number("target", fault.target, 0.999999);
  reader.integer("count", fault.count, keys.count_min, 1000);
  reader.names("nodes", fault.nodes);
  for (const NumberKey& key : kNumberKeys) reader.number(key.name, fault.*key.value, key.max);
  reader.only_if(keys.count, "count", *fault.kind);
  reader.only_if(keys.nodes, "nodes", *fault.kind);
  for (const NumberKey& key : kNumberKeys) reader.only_if(keys.*key.of_use, key.name, *fault.kind);
  STARLING_TRY(reader.finish());
  if (!fault.nodes.empty()) fault.count = static_cast<std::uint32_t>(fault.nodes.size());
  return fault;
}

Result<> read_run(const toml::node& node, Plan& plan) {
  if (!node.is_table()) return Error(Code::kBadInput, "run must be a table; [run]");
  Reader reader(*node.as_table(), "[run]");
  reader.integer("seed", plan.seed, 0, std::uint64_t(std::numeric_limits<std::int64_t>::max()));
  reader.integer("steps", plan.steps, 1, 0xffff'ffff, true);
  reader.integer("workers", plan.workers, 1, 64, true);
  reader.integer("threads", plan.threads, 1, 256);
  reader.integer("coordinators", plan.coordinators, 1, 5);
  reader.integer("lease_ms", plan.lease_ms, 10, 86'400'000);
  reader.integer("replicas", plan.replicas, 0, 16);
  reader.names("nodes", plan.nodes);
  STARLING_TRY(reader.finish());
  if (plan.coordinators % 2 == 0)
    return Error(Code::kBadInput, "coordinators must be 1, 3 or 5; [run]");
  return ok();
}

}  // namespace

namespace {

std::string names_text(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return "nodes = [" + text + "]\n";
}

}  // namespace

std::string format_plan(const Plan& plan) {
  using job_words::number_text;
  std::ostringstream out;
  out << "# A plan of starling chaos. at_s: seconds after the first committed step; target: place\n"
         "# among those that the fault can hit, the oldest first, as a fraction; nodes: by "
         "name.\n\n[run]\n";
  if (plan.seed != 0) out << "seed = " << plan.seed << "\n";
  out << "steps = " << plan.steps << "\nworkers = " << plan.workers
      << "\nthreads = " << plan.threads << "\ncoordinators = " << plan.coordinators << "\n";
  if (plan.lease_ms) out << "lease_ms = " << *plan.lease_ms << "\n";
  if (plan.replicas) out << "replicas = " << *plan.replicas << "\n";
  if (!plan.nodes.empty()) out << names_text(plan.nodes);
  for (const Fault& fault : plan.faults) {
    out << "\n[[fault]]\nat_s = " << number_text(fault.at_s) << "\nkind = \"" << fault.kind->word
        << "\"\ntarget = " << number_text(fault.target) << "\n";
    if (fault.count != 1) out << "count = " << fault.count << "\n";
    if (!fault.nodes.empty()) out << names_text(fault.nodes);
    for (const NumberKey& key : kNumberKeys)
      if (fault.*key.value > 0) out << key.name << " = " << number_text(fault.*key.value) << "\n";
  }
  return out.str();
}

Result<Plan> parse_plan(const std::string& text) {
  const auto parsed = toml::parse(std::string_view(text));
  if (!parsed)
    return Error(Code::kBadInput, std::string(parsed.error().description()) + "; line " +
                                      std::to_string(parsed.error().source().begin.line) +
                                      ", expected TOML");
  Plan plan;
  const toml::table& root = parsed.table();
  for (const auto& [key, node] : root)
    if (key.str() != "run" && key.str() != "fault")
      return Error(Code::kBadInput, "unknown key `" + std::string(key.str()).substr(0, 64) +
                                        "`, known are run and fault; " + place(node, "plan"));
  const toml::node* run = root.get("run");
  if (!run) return Error(Code::kBadInput, "section is missing; [run]");
  STARLING_TRY(read_run(*run, plan));
  if (const toml::node* list = root.get("fault")) {
    const toml::array* faults = list->as_array();
    if (!faults || faults->size() > kFaultsMax)
      return Error(Code::kBadInput, "faults must be written as [[fault]], at most " +
                                        std::to_string(kFaultsMax) + "; " + place(*list, "plan"));
    for (const toml::node& node : *faults) {
      STARLING_TRY(fault, read_fault(node));
      plan.faults.push_back(fault);
    }
  }
  std::stable_sort(plan.faults.begin(), plan.faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at_s < b.at_s; });
  return plan;
}

Result<Plan> load_plan(const std::string& path) {
  STARLING_TRY(is_file(path, "a plan"));
  const std::string where = "reading " + path;
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    return Error(Code::kBadInput, "no such file or cannot be read, expected a plan; " + where);
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kFileBytesMax)
    return Error(Code::kBadInput, "a plan has at most 16 MiB; " + where);
  auto plan = parse_plan(text);
  if (!plan) return std::move(plan).error().in(where);
  return plan;
}

}  // namespace starling::chaos
