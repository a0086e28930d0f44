#pragma once
// LastWords knows why the workers of a run ended themselves: each writes the lines of its fail()
// into memory that `run` has given it, so that a failed run can say in its events what kept them.

#include <string>

namespace starling::tools {

// Threads: belongs to one thread.
class LastWords {
 public:
  LastWords();  // without memory it hears no words
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

  int fd() const { return fd_; }  // for the processes; -1: there is none
  // Returns the last line with this exit code; empty: none.
  std::string last_with(int code) const;

 private:
  int fd_ = -1;
};

}  // namespace starling::tools
