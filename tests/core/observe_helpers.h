#pragma once
// What the tests of events, logs and progress share.

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/observe/event.h"

namespace starling {

inline constexpr EpochId kEpoch{3, 2};

// Of two lives, in the order of micro-batches.
inline event::LedgerPassed ledger_of(Version version, const EpochId& epoch, std::uint64_t first,
                                     std::uint64_t second) {
  return {version, epoch, {{0, first}, {1, second}}};
}

// A path of this process's own, with nothing there at first and at the end.
class ObserveFolder {
 public:
  explicit ObserveFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("starling_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~ObserveFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  std::string file() const { return path_ / "events.jsonl"; }

 private:
  std::filesystem::path path_;
};

// Each line of a file as JSON; a line that is none fails the test.
inline std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(file, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

inline std::string text_of(std::FILE* file) {
  std::string out;
  std::rewind(file);
  for (int c; (c = std::fgetc(file)) != EOF;) out += static_cast<char>(c);
  return out;
}

}  // namespace starling
