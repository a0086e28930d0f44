#pragma once
// Client sends signed requests to one bucket, and sends those again that a store may answer another time.

#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/base/s3_place.h"
#include "core/formats/s3/http.h"

namespace starling::s3 {

struct Request {
  std::string method;
  std::string key;  // of the object; empty: the bucket itself
  std::map<std::string, std::string> query{};
  std::map<std::string, std::string> headers{};  // names in lower case
  std::span<const ByteView> body{};
  std::size_t answer_max = std::size_t{1} << 20;
  bool once = false;  // it is not sent again
};

// From now on each request of the process is tried once: it ends, and does not wait for a store that is away.
void hurry();

struct Answer {
  HttpReply reply;     // its status is 2xx, 404, 412 or 416
  bool again = false;  // an earlier try may have been carried out
};

// Threads: any.
class Client {
 public:
  explicit Client(std::string bucket) : bucket_(std::move(bucket)) {}

  // Blocks. A store that is down, overloaded or silent is asked again, for a quarter of a minute in all; once that was
  // in vain each request of the process is tried once, until one succeeds.
  // Errors: kUnavailable  it still is; kBadInput  it refuses, or there is no key.
  Result<Answer> send(const Request& request) const;

 private:
  const std::string bucket_;
};

}  // namespace starling::s3
