#pragma once
// Documents are what a language model learns from: each file of text is one, or each line of a
// file of JSON lines (.jsonl, .ndjson) has one, as a text, an answer behind its prompt, or a chat.

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/text/chat.h"

namespace starling {

struct Document {
  std::vector<Stretch> stretches;  // one behind the other; none of them empty
  std::string place;               // "FILE" or "FILE, line 7"
};

// What of a line's object is the document.
struct LineForm {
  std::string field = "text";  // the member with the text, or with the messages of a chat
  std::string prompt = {};     // the member with a text before it that is not learned; empty: none
  const ChatForm* chat = nullptr;  // how a chat is written; null: the field has a text
  // Whether some of the tokens are not learned; then documents are lines.
  bool masks() const { return chat != nullptr || !prompt.empty(); }
};

// Reads the documents of files, one after the other. One thread.
class Documents {
 public:
  static constexpr std::uint64_t kLineMax = 64u << 20, kFileMax = 8ull << 30;

  Documents(std::vector<std::string> files, LineForm form)
      : files_(std::move(files)), form_(std::move(form)) {}

  // The next documents, of together at least `bytes` bytes unless these are the last; none: the end.
  // Empty documents are left out. Errors: kBadInput  a file that cannot be read, is longer than kFileMax
  // and one document, or has a line that is not of the form; the text names file and line.
  Result<std::vector<Document>> next(std::uint64_t bytes);

 private:
  Result<> take_file(std::vector<Document>& documents);
  Result<> take_line(std::vector<Document>& documents);

  std::vector<std::string> files_;
  LineForm form_;
  std::size_t file_ = 0;
  std::ifstream lines_;  // of files_[file_], where it is one of lines
  std::uint64_t line_ = 0;
  std::uint64_t taken_ = 0;  // bytes of the documents of this call
};

}  // namespace starling
