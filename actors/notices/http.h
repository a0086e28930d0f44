#pragma once
// HttpClient asks a metadata service over plain HTTP/1.1: one request at a time, a fresh
// connection for each. It resolves no names, uses no proxy, follows no redirect, bounds
// answers, and ends every wait: after 1 s to connect, then after the request's own timeout.
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
  // `base`: http://ADDRESS or http://ADDRESS:PORT; ADDRESS is numeric,
  // IPv6 in brackets. Errors: kBadInput  `base` has another form.
  static Result<std::unique_ptr<HttpClient>> make(const std::string& base);
  ~HttpClient();

  // Errors: kUnavailable  no service there, no whole answer in time, or
  // cancelled; kCorrupt  the answer is not HTTP, or above kAnswerBytesMax.
  Result<HttpAnswer> ask(const HttpRequest& request);
  // Waits for this time. False: cancelled.
  bool wait(std::chrono::milliseconds time);
  // Ends the request or wait under way, and every later one, at once.
  void cancel();

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace starling::actors
