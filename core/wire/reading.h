#pragma once
// For the codec's sources only: notes the first thing that is wrong while a message is read.

#include <capnp/common.h>
#include <capnp/list.h>

#include <cstddef>
#include <string>
#include <utility>

namespace starling::wire {

// Reading goes on after a fault (with empty values in place of the wrong ones); the owner of the
// Reading asks for the fault at the end and gives the message back only without one.
class Reading {
 public:
  bool need(bool holds, const char* what) {
    if (!holds && fault_.empty()) fault_ = what;
    return holds;
  }
  // The list's size, or 0 and a fault if it is above `max`. Sizes are checked before memory is
  // taken.
  template <class List>
  std::size_t bounded(const List& list, std::size_t max, const char* what) {
    if (list.size() <= max) return list.size();
    note(std::string(what) + " has " + std::to_string(list.size()) +
         " elements, expected at most " + std::to_string(max));
    return 0;
  }
  std::string text(capnp::Text::Reader in, std::size_t max, const char* what) {
    return {in.begin(), in.begin() + bounded(in, max, what)};
  }
  // A newer build's message is not damaged: the receiver drops it and goes on.
  void unknown(const char* what) {
    if (fault_.empty()) unknown_ = true;
    note(what);
  }

  const std::string& fault() const { return fault_; }
  bool is_unknown() const { return unknown_; }

 private:
  void note(std::string fault) {
    if (fault_.empty()) fault_ = std::move(fault);
  }
  std::string fault_;
  bool unknown_ = false;
};

}  // namespace starling::wire
