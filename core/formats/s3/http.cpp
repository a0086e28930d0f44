#include "core/formats/s3/http.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/check.h"
#include "core/base/environment.h"
#include "core/base/mutex.h"
#include "core/base/text.h"

namespace starling::s3 {
namespace {

constexpr unsigned kOldest = 0x075500;  // 7.85: CURLOPT_PROTOCOLS_STR
constexpr std::size_t kHeaderBytesMax = 64 * 1024;

// Where systems keep the certificates that they trust; libcurl knows only its own system's place.
constexpr const char* kCertificates[] = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem"};

std::string certificates() {
  for (const EnvVar name : {EnvVar::kAwsCaBundle, EnvVar::kSslCertFile})
    if (const std::string& file = environment().value(name); !file.empty()) return file;
  for (const char* const file : kCertificates)
    if (::access(file, R_OK) == 0) return file;
  return {};
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// What another try would find again is bad input.
Error failure(CURLcode code, const std::string& said, const HttpCall& call) {
  const std::string text = without_secrets(said);  // of a proxy's address
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
    return Error(Code::kBadInput,
                 text + " (" + call.ca_option + " names a file of certificates to trust)");
  if (code == CURLE_SSL_CONNECT_ERROR && text.find("wrong version number") != text.npos)
    return Error(Code::kBadInput, "there is no TLS, expected an address with http://: " + text);
  return Error(Code::kUnavailable, text);
}

// What the callbacks of one call read and write.
struct Transfer {
  const HttpCall& call;
  HttpReply reply;
  std::size_t header_bytes = 0;
  std::size_t piece = 0, at = 0;  // of the body: what is sent next

  bool is_cut() const { return reply.body.size() > call.answer_max; }
};

std::size_t write_body(char* data, std::size_t, std::size_t size, void* of) {
  auto& t = *static_cast<Transfer*>(of);
  const std::size_t room = t.call.answer_max + 1 - t.reply.body.size();
  t.reply.body.append(data, std::min(size, room));
  return t.is_cut() ? 0 : size;  // 0 ends the transfer
}

std::size_t write_header(char* data, std::size_t, std::size_t size, void* of) {
  auto& t = *static_cast<Transfer*>(of);
  const std::string_view line(data, size);
  t.header_bytes += size;
  if (t.header_bytes > kHeaderBytesMax) return 0;
  if (line.starts_with("HTTP/")) t.reply.headers.clear();  // of a proxy, or "100 Continue"
  const auto colon = line.find(':');
  if (colon != line.npos)
    t.reply.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  return size;
}

std::size_t read_body(char* out, std::size_t, std::size_t size, void* of) {
  auto& t = *static_cast<Transfer*>(of);
  while (t.piece < t.call.body.size()) {
    const ByteView rest = t.call.body[t.piece].subspan(t.at);
    const std::size_t n = std::min(size, rest.size());
    if (n > 0) {
      std::memcpy(out, rest.data(), n);
      t.at += n;
      return n;
    }
    ++t.piece;
    t.at = 0;
  }
  return 0;
}

// Only to the beginning, where a connection that was kept turns out to be gone.
int rewind_body(void* of, curl_off_t offset, int origin) {
  auto& t = *static_cast<Transfer*>(of);
  if (offset != 0 || origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  t.piece = t.at = 0;
  return CURL_SEEKFUNC_OK;
}

}  // namespace

struct Http::Library {
  void* file = nullptr;
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_version_info) version_info = nullptr;
  decltype(&curl_easy_init) init = nullptr;
  decltype(&curl_easy_reset) reset = nullptr;
  decltype(&curl_easy_setopt) setopt = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  decltype(&curl_easy_getinfo) getinfo = nullptr;
  decltype(&curl_easy_strerror) error_text = nullptr;
  decltype(&curl_slist_append) append = nullptr;
  decltype(&curl_slist_free_all) free_list = nullptr;
  std::string ca_file;
  std::string fault;  // not empty: cannot be used

  Mutex mutex;
  std::vector<CURL*> idle STARLING_GUARDED_BY(mutex);
};

// A handle with its connections, back among the idle ones at the end.
struct Http::Lease {
  explicit Lease(Library& of) : library(of) {
    const MutexLock lock(library.mutex);
    if (library.idle.empty()) {
      curl = library.init();
    } else {
      curl = library.idle.back();
      library.idle.pop_back();
    }
  }
  ~Lease() {
    library.free_list(headers);
    if (curl == nullptr) return;
    library.reset(curl);
    const MutexLock lock(library.mutex);
    library.idle.push_back(curl);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  template <class Value>
  void set(CURLoption option, Value value) {
    STARLING_CHECK(library.setopt(curl, option, value) == CURLE_OK);
  }
  void add(const std::string& header) {
    curl_slist* const longer = library.append(headers, header.c_str());
    STARLING_CHECK(longer != nullptr);
    headers = longer;
  }

  Library& library;
  CURL* curl = nullptr;
  curl_slist* headers = nullptr;
};

std::string without_secrets(const std::string& text) {
  std::string out;
  bool in_address = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (text.compare(i, 3, "://") == 0) {
      // Until a space, a quote or the path nothing but a host is shown.
      const auto end = std::min(text.find_first_of(" '\"/?#,;", i + 3), text.size());
      const auto at = text.rfind('@', end);
      out += "://";
      i = at != text.npos && at > i + 2 && at < end ? at : i + 2;
      in_address = true;
      continue;
    }
    if (c == ' ' || c == '\'' || c == '"') in_address = false;
    if (in_address && (c == '?' || c == '#')) {
      const auto end = std::min(text.find_first_of(" '\"", i), text.size());
      out += "?..";
      i = end - 1;
      continue;
    }
    out += c < 0x20 || c == 0x7f ? ' ' : text[i];
  }
  return out;
}

std::string HttpReply::header(const std::string& name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? "" : at->second;
}

Http::Http() : library_(std::make_unique<Library>()) {
  Library& l = *library_;
  l.file = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (l.file == nullptr) {
    const char* const why = ::dlerror();
    l.fault =
        "s3:// and [identity] need libcurl.so.4 (of Debian's and Ubuntu's package libcurl4): " +
        std::string(why ? why : "it is not here");
    return;
  }
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(l.file, name));
    if (function == nullptr && l.fault.empty())
      l.fault = "libcurl.so.4 has no " + std::string(name) + ", expected version 7.85 or newer";
  };
  find("curl_global_init", l.global_init);
  find("curl_version_info", l.version_info);
  find("curl_easy_init", l.init);
  find("curl_easy_reset", l.reset);
  find("curl_easy_setopt", l.setopt);
  find("curl_easy_perform", l.perform);
  find("curl_easy_getinfo", l.getinfo);
  find("curl_easy_strerror", l.error_text);
  find("curl_slist_append", l.append);
  find("curl_slist_free_all", l.free_list);
  if (!l.fault.empty()) return;
  const curl_version_info_data* const version = l.version_info(CURLVERSION_NOW);
  if (version->version_num < kOldest)
    l.fault = "libcurl has version " + std::string(version->version) + ", expected 7.85 or newer";
  else if (l.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    l.fault = "libcurl cannot be set up";
  l.ca_file = certificates();
}

Result<Http*> Http::open() {
  static Http* const http = new Http();
  if (!http->library_->fault.empty()) return Error(Code::kBadInput, http->library_->fault);
  return http;
}

Result<HttpReply> Http::send(const HttpCall& call) {
  Library& l = *library_;
  Lease lease(l);
  if (lease.curl == nullptr) return Error(Code::kUnavailable, "libcurl has no memory");
  Transfer transfer{call, {}};
  char why[CURL_ERROR_SIZE] = "";
  for (const auto& [name, value] : call.headers) lease.add(name + ": " + value);
  lease.add("Expect:");  // a store that does not know "100-continue" would cost a second

  lease.set(CURLOPT_URL, call.url.c_str());
  lease.set(CURLOPT_HTTPHEADER, lease.headers);
  lease.set(CURLOPT_ERRORBUFFER, why);
  lease.set(CURLOPT_NOSIGNAL, 1L);
  lease.set(CURLOPT_PROTOCOLS_STR, "http,https");
  lease.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  lease.set(CURLOPT_USERAGENT, "starling");
  const bool hasty = call.hasty || call.metadata;
  lease.set(CURLOPT_CONNECTTIMEOUT, hasty ? 2L : 5L);
  lease.set(CURLOPT_LOW_SPEED_LIMIT, 1024L);  // B/s
  lease.set(CURLOPT_LOW_SPEED_TIME, hasty ? 5L : 10L);
  if (call.metadata) lease.set(CURLOPT_NOPROXY, "*");
  const std::string& ca_file = call.ca_file.empty() ? l.ca_file : call.ca_file;
  if (!ca_file.empty()) lease.set(CURLOPT_CAINFO, ca_file.c_str());
  if (call.within.count() > 0) lease.set(CURLOPT_TIMEOUT, static_cast<long>(call.within.count()));
  lease.set(CURLOPT_WRITEFUNCTION, &write_body);
  lease.set(CURLOPT_WRITEDATA, &transfer);
  lease.set(CURLOPT_HEADERFUNCTION, &write_header);
  lease.set(CURLOPT_HEADERDATA, &transfer);
  lease.set(CURLOPT_READFUNCTION, &read_body);
  lease.set(CURLOPT_READDATA, &transfer);
  lease.set(CURLOPT_SEEKFUNCTION, &rewind_body);
  lease.set(CURLOPT_SEEKDATA, &transfer);
  curl_off_t bytes = 0;
  for (const ByteView piece : call.body) bytes += static_cast<curl_off_t>(piece.size());
  if (call.method == "HEAD") {
    lease.set(CURLOPT_NOBODY, 1L);
  } else if (call.method == "PUT") {
    lease.set(CURLOPT_UPLOAD, 1L);
    lease.set(CURLOPT_INFILESIZE_LARGE, bytes);
  } else if (call.method == "POST") {
    lease.set(CURLOPT_POST, 1L);
    lease.set(CURLOPT_POSTFIELDSIZE_LARGE, bytes);
  } else if (call.method != "GET") {
    lease.set(CURLOPT_CUSTOMREQUEST, call.method.c_str());
  }

  const CURLcode code = l.perform(lease.curl);
  if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && transfer.is_cut()))
    return failure(code, *why != '\0' ? why : l.error_text(code), call);
  long status = 0;
  STARLING_CHECK(l.getinfo(lease.curl, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK);
  transfer.reply.status = static_cast<int>(status);
  const bool bounded = transfer.reply.headers.contains("content-length") ||
                       transfer.reply.headers.contains("transfer-encoding");
  if (!transfer.reply.body.empty() && !bounded)
    return Error(Code::kUnavailable, "the answer does not say how long it is");
  return std::move(transfer.reply);
}

}  // namespace starling::s3
