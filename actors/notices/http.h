#pragma once
// Asks a metadata service over plain HTTP/1.1: one request at a time, a fresh connection for each.
// No names are resolved, no proxy is used, no redirect followed, answers are bounded, and every
// wait has an end: 1 s to connect, then the request's own.
//
// Threads: ask() and wait() belong to one thread; cancel() may be called from any other.

#include <chrono>
#include <memory>
#include <string>

#include "actors/notices/source.h"
#include "core/base/result.h"

namespace starling::actors {

class HttpClient {
 public:
  // `base`: http://ADDRESS or http://ADDRESS:PORT; ADDRESS is numeric, IPv6 in brackets.
  // Errors: kBadInput  it is not.
  static Result<std::unique_ptr<HttpClient>> make(const std::string& base);
  ~HttpClient();

  // Errors: kUnavailable  nobody there, or no whole answer in time, or cancelled; kCorrupt  what
  // came is not HTTP, or above kAnswerBytesMax.
  Result<HttpAnswer> ask(const HttpRequest& request);
  // False: cancelled.
  bool wait(std::chrono::milliseconds time);
  // What is under way ends at once, and everything from now on.
  void cancel();

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace starling::actors
