#pragma once
// Section reads one table of a job file, field by field: what every reader of a section needs, and
// how mistakes are told. Only for the readers of core/job.

// The header-only form: Debian's shared library is built with exceptions and has no other parse().
#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/nearest.h"
#include "core/base/result.h"
#include "core/job/synonyms.h"
#include "core/job/words.h"

namespace starling::job_words {

inline constexpr std::uint64_t kIntegerMax = std::numeric_limits<std::int64_t>::max();  // TOML's

// Suggests "did you mean `x`?", a synonym's meaning, or, if nothing is near, all that is known.
inline std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  if (const auto meant = meaning_of(word); !meant.empty()) return std::string(meant);
  if (const auto near = nearest(word, known); !near.empty()) return "did you mean `" + near + "`?";
  std::string all = "known are ";
  for (const auto& k : known) all += (&k == known.data() ? "" : ", ") + k;
  return all;
}

// Foreign text for a message: printable, of so many bytes at most; UTF-8 stays whole.
inline std::string shown(std::string_view text, std::size_t max = 64) {
  std::size_t end = std::min(text.size(), max);
  while (end < text.size() && end > 0 && (text[end] & 0xc0) == 0x80) --end;
  std::string out;
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 0x20 || byte == 0x7f) ? '?' : c;
  }
  return end < text.size() ? out + "..." : out;
}

inline std::string shown(const toml::node& node) {
  if (const auto* text = node.as_string()) return '"' + shown(text->get()) + '"';
  std::ostringstream out;
  out << toml::node_view<const toml::node>(node);
  return shown(out.str());
}

// One table of the job file. Reads fields into place; remembers the first error of the whole file
// (`failure`, shared by all sections) and does nothing after it.
class Section {
 public:
  // A table that lies in another one, "optimizer.groups".
  Section inner(const std::string& key, const toml::table& table) const {
    Section inside({}, name_ + "." + key, false, failure_);
    inside.table_ = &table;
    return inside;
  }
  Section(const toml::table& root, std::string name, bool required, std::optional<Error>& failure)
      : name_(std::move(name)), failure_(failure) {
    const toml::node* node = root.get(name_);
    if (node && node->is_table()) table_ = node->as_table();
    if (node && !table_) fail(name_ + " must be a table", "[" + name_ + "]" + line(*node));
    if (!node && required) fail("section is missing", "[" + name_ + "]");
  }

  template <class T>
  void integer(const char* key, T& out, std::uint64_t min, std::uint64_t max,
               bool required = false) {
    const toml::node* node = find(key, required);
    if (!node) return;
    const auto* value = node->as_integer();
    max = std::min({max, kIntegerMax, std::uint64_t{std::numeric_limits<T>::max()}});
    if (!value || value->get() < 0 || static_cast<std::uint64_t>(value->get()) < min ||
        static_cast<std::uint64_t>(value->get()) > max) {
      return expected(key, *node,
                      "an integer from " + std::to_string(min) + " to " + std::to_string(max));
    }
    out = static_cast<T>(value->get());
  }

  // The number lies in [min, max], or in (min, max] if `above`.
  void number(const char* key, double& out, double min, double max, bool above = false,
              bool required = false) {
    const toml::node* node = find(key, required);
    if (!node) return;
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value || !(above ? *value > min : *value >= min) || !(*value <= max)) {
      return expected(key, *node,
                      std::string("a number ") + (above ? "above " : "from ") + number_text(min) +
                          (above ? ", at most " : " to ") + number_text(max));
    }
    out = *value;
  }

  void boolean(const char* key, bool& out) {
    const toml::node* node = find(key, false);
    if (!node) return;
    if (!node->is_boolean()) return expected(key, *node, "true or false");
    out = node->as_boolean()->get();
  }

  void text(const char* key, std::string& out, std::size_t bytes_max, bool required) {
    const toml::node* node = find(key, required);
    if (!node) return;
    const auto* value = node->as_string();
    if (!value || value->get().empty() || value->get().size() > bytes_max ||
        value->get().find('\0') != std::string::npos) {
      return expected(key, *node, "a text of 1 to " + std::to_string(bytes_max) + " bytes");
    }
    out = value->get();
  }

  // 16 hex digits.
  void hex(const char* key, std::uint64_t& out) {
    const toml::node* node = find(key, false);
    if (!node) return;
    const auto* value = node->as_string();
    const bool fine = value && value->get().size() == 16 &&
                      value->get().find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!fine) return expected(key, *node, "16 hex digits");
    out = std::stoull(value->get(), nullptr, 16);
  }

  template <class T>
  void choice(const char* key, T& out, std::span<const Choice> choices, bool required) {
    const toml::node* node = find(key, required);
    if (!node) return;
    std::string words;
    for (const Choice& c : choices) {
      if (node->is_string() && node->as_string()->get() == c.word) {
        out = static_cast<T>(c.value);
        return;
      }
      if (c.told) words += (words.empty() ? "\"" : ", \"") + std::string(c.word) + "\"";
    }
    const std::string meant(node->is_string() ? meaning_of(node->as_string()->get()) : "");
    if (!meant.empty()) return wrong(key, meant);
    expected(key, *node, "one of " + words);
  }

  // What is at `key`, or null; reads nothing.
  const toml::node* node(const char* key) { return find(key, false); }
  // The array at `key`, or null; reads nothing.
  const toml::array* array(const char* key, bool required, std::size_t count_max) {
    const toml::node* node = find(key, required);
    if (!node) return nullptr;
    const auto* array = node->as_array();
    if (array && array->size() <= count_max) return array;
    expected(key, *node, "an array of at most " + std::to_string(count_max) + " entries");
    return nullptr;
  }

  // The table at `key`, or null; reads nothing.
  const toml::table* table(const char* key) {
    const toml::node* node = find(key, false);
    if (!node) return nullptr;
    if (!node->is_table()) expected(key, *node, "a table");
    return node->as_table();
  }

  // The keys are known but wrong here. While something is missing, it is not known what applies.
  void refuse(std::initializer_list<const char*> keys, const std::string& why) {
    for (const char* key : keys)
      if (const toml::node* node = find(key, false); node && !missing_)
        fail(std::string(key) + " does not apply " + why, place(key, node));
  }

  void expected(const char* key, const toml::node& node, const std::string& what) {
    fail(std::string(key) + " must be " + what + ", is " + shown(node), place(key, &node));
  }
  // A relation between fields does not hold.
  void wrong(const char* key, const std::string& what) {
    fail(what, place(key, table_ ? table_->get(key) : nullptr));
  }

  // Called after all fields were asked for: any other key is unknown. An unknown key is told before
  // a missing one, as it may be another name of what is missing.
  void finish() {
    if (!table_ || failure_) return;
    for (const auto& [key, node] : *table_) {
      if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
      fail("unknown key `" + shown(key.str()) + "`, " + suggestion(key.str(), known_),
           place(shown(key.str()).c_str(), &node));
    }
    if (missing_ && !failure_) failure_ = std::move(missing_);
  }
  bool good() const { return !failure_ && !missing_; }
  bool there() const { return table_ != nullptr; }
  // The key is known from now on.
  bool has(const char* key) { return find(key, false) != nullptr; }
  // The keys that were asked for.
  const std::vector<std::string>& known() const { return known_; }

 private:
  const toml::node* find(const char* key, bool required) {
    if (std::ranges::find(known_, key) == known_.end()) known_.push_back(key);
    if (failure_) return nullptr;
    const toml::node* node = table_ ? table_->get(key) : nullptr;
    if (!node && required && !missing_)
      missing_.emplace(Code::kBadInput, std::string(key) + " is missing; " + place(key, table_));
    return node;
  }
  static std::string line(const toml::node& node) {
    return ", line " + std::to_string(node.source().begin.line);
  }
  std::string place(const char* key, const toml::node* node) const {
    return "[" + name_ + "]." + key + (node ? line(*node) : "");
  }
  void fail(const std::string& what, const std::string& where) {
    if (!failure_) failure_.emplace(Code::kBadInput, what + "; " + where);
  }

  std::string name_;
  const toml::table* table_ = nullptr;
  std::vector<std::string> known_;
  std::optional<Error> missing_;  // the first
  std::optional<Error>& failure_;
};

// Whether it is a path of this machine; else the section is wrong. `what`: "a file or folder".
inline bool path_of_this_machine(Section& s, const char* key, const std::string& path,
                                 const char* what) {
  if (path.find("://") != std::string::npos)
    s.wrong(key, std::string(key) + " must be " + what + " of this machine, is the address " +
                     shown(path) + ", which nothing here understands");
  else if (path.starts_with("~"))
    s.wrong(key, std::string(key) + " is " + shown(path) +
                     ", and ~ means no folder here: write the whole path");
  return s.good();
}

}  // namespace starling::job_words
