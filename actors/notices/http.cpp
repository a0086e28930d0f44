#include "actors/notices/http.h"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>

#include "actors/notices/answers.h"

namespace starling::actors {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr std::chrono::seconds kConnect{1};
constexpr std::uint32_t kHeaderBytesMax = 8 * 1024;

Error bad_base(const std::string& base) {
  return Error(Code::kBadInput, "'" + base +
                                    "' is no base of a metadata service, expected "
                                    "http://ADDRESS or http://ADDRESS:PORT, ADDRESS numeric");
}

Error failure(const error_code& error) {
  const bool came = error.category() == http::make_error_code(http::error::bad_value).category() &&
                    error != http::error::end_of_stream && error != http::error::partial_message;
  if (came) return Error(Code::kCorrupt, "what came is not an answer: " + error.message());
  return Error(Code::kUnavailable, "no answer: " + error.message());
}

http::request<http::string_body> message(const HttpRequest& request, const std::string& host) {
  const auto verb = http::string_to_verb(request.method);
  http::request<http::string_body> out{verb, request.target, /*HTTP/1.1*/ 11};
  out.set(http::field::host, host);
  out.set(http::field::user_agent, "starling");
  for (const auto& [name, value] : request.headers) out.set(name, value);
  out.keep_alive(false);
  out.body() = request.body;
  out.prepare_payload();
  return out;
}

}  // namespace

struct HttpClient::Impl {
  asio::ip::tcp::endpoint endpoint;
  std::string host;
  std::atomic<bool> cancelled = false;
  asio::io_context io{1};
  // Used by the asking thread only:
  asio::steady_timer timer{io};
  beast::tcp_stream* stream = nullptr;  // of the request under way

  Result<HttpAnswer> ask(const HttpRequest& request);
  void run() {
    io.restart();
    io.run();
  }
};

Result<HttpAnswer> HttpClient::Impl::ask(const HttpRequest& request) {
  if (cancelled) return Error(Code::kUnavailable, "cancelled");
  beast::tcp_stream connection(io);
  const auto out = message(request, host);
  beast::flat_buffer buffer(kHeaderBytesMax + kAnswerBytesMax);
  http::response_parser<http::string_body> parser;
  parser.header_limit(kHeaderBytesMax);
  parser.body_limit(kAnswerBytesMax);
  error_code failed;

  stream = &connection;
  connection.expires_after(kConnect);
  connection.async_connect(endpoint, [&](error_code error) {
    if ((failed = error)) return;
    connection.expires_after(request.timeout);
    http::async_write(connection, out, [&](error_code written, std::size_t) {
      if ((failed = written)) return;
      http::async_read_header(connection, buffer, parser, [&](error_code read, std::size_t) {
        if ((failed = read)) return;
        // Boost 1.74 looks at body_limit() only where no length is stated, and would take memory
        // for any length that is.
        if (parser.content_length().value_or(0) > kAnswerBytesMax) {
          failed = http::make_error_code(http::error::body_limit);
          return;
        }
        http::async_read(connection, buffer, parser,
                         [&](error_code whole, std::size_t) { failed = whole; });
      });
    });
  });
  run();
  stream = nullptr;
  if (failed) return failure(failed);
  const auto& answer = parser.get();
  const auto etag = answer[http::field::etag];
  return HttpAnswer{answer.result_int(), answer.body(), std::string(etag.data(), etag.size())};
}

Result<std::unique_ptr<HttpClient>> HttpClient::make(const std::string& base) {
  constexpr std::string_view scheme = "http://";
  if (!base.starts_with(scheme)) return bad_base(base);
  std::string_view rest = std::string_view(base).substr(scheme.size());
  auto impl = std::make_unique<Impl>();
  impl->host = rest;
  std::uint16_t port = 80;
  if (const auto colon = rest.rfind(':'); colon != rest.npos && !rest.ends_with(']')) {
    const auto digits = rest.substr(colon + 1);
    const auto end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, port);
    if (read.ec != std::errc() || read.ptr != end || port == 0) return bad_base(base);
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  error_code error;
  const auto address = asio::ip::make_address(std::string(rest), error);
  if (error) return bad_base(base);
  impl->endpoint = {address, port};
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::~HttpClient() = default;

Result<HttpAnswer> HttpClient::ask(const HttpRequest& request) {
  return impl_->ask(request);
}

bool HttpClient::wait(std::chrono::milliseconds time) {
  if (impl_->cancelled) return false;
  impl_->timer.expires_after(time);
  impl_->timer.async_wait([](error_code) {});
  impl_->run();
  return !impl_->cancelled;
}

void HttpClient::cancel() {
  impl_->cancelled = true;
  // Cancels the request under way and all later ones: each completes with an error.
  asio::post(impl_->io, [impl = impl_.get()] {
    impl->timer.cancel();
    if (impl->stream != nullptr) impl->stream->close();
  });
}

}  // namespace starling::actors
