#pragma once
// A PageServer answers GET over plain HTTP with what a program says now.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"

namespace starling::tools {

struct Page {
  std::string type;  // Content-Type
  std::string body;
};

// Threads: one of its own, in which pages are made; make() and the destructor belong to another one.
class PageServer {
 public:
  // Makes the page of a target; `accept`: the client's Accept. None: there is no such page.
  using Answer =
      std::function<std::optional<Page>(const std::string& target, const std::string& accept)>;

  struct Place {
    std::string address;    // PORT (of 127.0.0.1) or HOST:PORT; port 0: any
    std::string option;     // that has the address, for errors
    std::string not_found;  // a sentence that says which pages there are
  };
  // Errors: kBadInput  it is no address, or cannot be listened at.
  static Result<std::unique_ptr<PageServer>> make(const Place& place, Answer answer);
  ~PageServer();

  // "http://127.0.0.1:9464".
  const std::string& url() const { return url_; }

 private:
  struct Impl;
  PageServer(std::unique_ptr<Impl> impl, std::string url);
  const std::unique_ptr<Impl> impl_;
  const std::string url_;
};

}  // namespace starling::tools
