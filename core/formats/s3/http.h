#pragma once
// HTTP over libcurl, which is opened at run time by the first request: a process that keeps nothing in a
// store and asks no identity provider does not load it. Proxies are those of the environment; TLS asks the system's certificates, or the
// file that AWS_CA_BUNDLE or SSL_CERT_FILE names. Redirects are not followed: they would need another signature.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling::s3 {

// A text without users, passwords and queries of the addresses in it, and in one line.
std::string without_secrets(const std::string& text);

struct HttpCall {
  std::string method;  // GET, HEAD, PUT, POST or DELETE
  std::string url;
  std::map<std::string, std::string> headers;
  std::span<const ByteView> body{};  // of PUT and POST
  std::size_t answer_max = std::size_t{1} << 20;
  bool hasty = false;              // two seconds for a connection, and five without a byte
  bool metadata = false;           // hasty, of a service of this machine: no proxy
  std::chrono::seconds within{0};  // the whole call; 0: as long as bytes pass
  std::string
      ca_file{};  // of certificates that are trusted instead of the usual ones; empty: those
  std::string ca_option = "AWS_CA_BUNDLE";  // what names such a file, for people
};

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // cut behind answer_max + 1 bytes

  bool good() const { return status >= 200 && status < 300; }
  std::string header(const std::string& name) const;  // empty: there is none
};

// Threads: any, also several at once; each has a connection, which is kept for the next call.
class Http {
 public:
  // The one of this process. Errors: kBadInput  there is no libcurl, or an older one than 7.85.
  static Result<Http*> open();

  // Blocks: at most 5 s for a connection, then as long as bytes pass; 10 s with less than 1 KiB/s end the call.
  // Errors: kUnavailable  no whole answer came: no connection, a silence, a cut body; kBadInput  there is
  // no TLS, or its certificate is not trusted.
  Result<HttpReply> send(const HttpCall& call);

 private:
  struct Library;
  struct Lease;
  Http();
  ~Http() = delete;  // it is there as long as the process is
  const std::unique_ptr<Library> library_;
};

}  // namespace starling::s3
