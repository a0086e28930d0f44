#pragma once
// Documents are the texts that a language model learns from: each file of text is one, or each line of a
// file of JSON lines (.jsonl, .ndjson) has one.

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling {

struct Document {
  std::string text;
  std::string place;  // "FILE" or "FILE, line 7"
};

// Reads the documents of files, one after the other. One thread.
class Documents {
 public:
  static constexpr std::uint64_t kLineMax = 64u << 20, kFileMax = 8ull << 30;

  // `field`: the member of a line's object that has the text.
  Documents(std::vector<std::string> files, std::string field)
      : files_(std::move(files)), field_(std::move(field)) {}

  // The next documents, of together at least `bytes` bytes unless these are the last; none: the end.
  // Empty documents are left out. Errors: kBadInput  a file that cannot be read, is longer than kFileMax
  // and one document, or has a line that is no object with that field; the text names file and line.
  Result<std::vector<Document>> next(std::uint64_t bytes);

 private:
  Result<> take_file(std::vector<Document>& documents);
  Result<> take_line(std::vector<Document>& documents);

  std::vector<std::string> files_;
  std::string field_;
  std::size_t file_ = 0;
  std::ifstream lines_;  // of files_[file_], where it is one of lines
  std::uint64_t line_ = 0;
  std::uint64_t taken_ = 0;  // bytes of the documents of this call
};

}  // namespace starling
