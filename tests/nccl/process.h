#pragma once
// A rank in a process of its own (member_main.cpp), spoken to line by line.

#include <sys/types.h>

#include <string>
#include <vector>

namespace starling::collectives {

struct ProcessOptions {
  std::string orders;                // for the stand-in
  std::string limits;                // "CONNECT_MS ROUND_MS END_MS"; empty: generous
  std::vector<std::string> command;  // whose process it is; empty: nccl_member, with `limits`
};

// Threads: one.
class Process {
 public:
  explicit Process(const ProcessOptions& options = {});
  ~Process();  // kills it, if it is there
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void say(const std::string& line);
  // Its next line; "nothing" after two minutes, "end" if it has ended.
  std::string hear();
  std::string ask(const std::string& line) {
    say(line);
    return hear();
  }
  void kill();
  void freeze();  // until it is killed
  // The end of its input, and its end. Its exit status.
  int end();
  // Waits for its end. Its exit status, or 128 + the signal that ended it; of one that does not end in
  // two minutes, which is killed, kStays.
  int status();
  static constexpr int kStays = -1;
  // What it has written to stderr, once it has ended.
  std::string complaints();

 private:
  pid_t pid_ = 0;  // 0: it was waited for
  int in_ = -1, out_ = -1, errors_ = -1;
  int status_ = 0;
  std::string heard_;
};

}  // namespace starling::collectives
