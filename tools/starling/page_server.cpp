#include "tools/starling/page_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/address.h"
#include "core/base/thread_name.h"
#include "tools/starling/group.h"

namespace starling::tools {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr std::chrono::seconds kPatience{5};  // for a request, and for its answer to be taken
constexpr std::uint32_t kHeaderBytesMax = 8 * 1024;
constexpr int kConnectionsMax = 16;

// One request and its answer. It owns itself by what is under way.
struct Connection : std::enable_shared_from_this<Connection> {
  Connection(asio::ip::tcp::socket socket, const PageServer::Answer& by, const std::string& none,
             int& count)
      : stream(std::move(socket)), answer_of(by), not_found(none), open(count) {
    ++open;
  }
  ~Connection() { --open; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void begin() {
    parser.header_limit(kHeaderBytesMax);
    parser.body_limit(0);
    stream.expires_after(kPatience);
    http::async_read_header(stream, buffer, parser,
                            [self = shared_from_this()](error_code error, std::size_t) {
                              if (!error) self->answer();
                            });
  }

  void answer() {
    const auto& request = parser.get();
    const auto as_text = [](auto view) { return std::string(view.data(), view.size()); };
    const std::string target = as_text(request.target());
    reply.set(http::field::content_type, "text/plain; charset=utf-8");
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      reply.result(http::status::method_not_allowed);
      reply.set(http::field::allow, "GET, HEAD");
    } else if (auto page = answer_of(target, as_text(request[http::field::accept]))) {
      reply.set(http::field::content_type, page->type);
      reply.body() = std::move(page->body);
    } else {
      reply.result(http::status::not_found);
      reply.body() = not_found + "\n";
    }
    reply.keep_alive(false);
    reply.prepare_payload();
    if (request.method() == http::verb::head) reply.body().clear();
    stream.expires_after(kPatience);
    http::async_write(stream, reply, [self = shared_from_this()](error_code, std::size_t) {
      error_code ignored;
      self->stream.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    });
  }

  beast::tcp_stream stream;
  const PageServer::Answer& answer_of;
  const std::string& not_found;
  int& open;
  beast::flat_buffer buffer{kHeaderBytesMax};
  http::request_parser<http::empty_body> parser;
  http::response<http::string_body> reply;
};

}  // namespace

struct PageServer::Impl {
  Impl(Answer by, std::string none) : answer(std::move(by)), not_found(std::move(none)) {}

  // The next connection; those beyond kConnectionsMax are closed at once.
  void accept() {
    acceptor.async_accept([this](error_code error, asio::ip::tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error && open < kConnectionsMax)
        std::make_shared<Connection>(std::move(socket), answer, not_found, open)->begin();
      if (!error) return accept();
      // accept() found no free descriptor: connections that end give some back.
      pause.expires_after(std::chrono::milliseconds(100));
      pause.async_wait([this](error_code over) {
        if (!over) accept();
      });
    });
  }

  const Answer answer;
  const std::string not_found;
  int open = 0;  // connections; before `io`, whose end ends them
  asio::io_context io{1};
  asio::ip::tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::thread thread;
};

Result<std::unique_ptr<PageServer>> PageServer::make(const Place& place, Answer answer) {
  const std::string& address = place.address;
  const bool port_alone = address.find_first_not_of("0123456789") == std::string::npos;
  STARLING_TRY(listen, address_to_listen(port_alone ? "127.0.0.1:" + address : address));
  STARLING_TRY(numeric, parse_address(listen));
  auto impl = std::make_unique<Impl>(std::move(answer), place.not_found);
  error_code error;
  const auto host = asio::ip::make_address(numeric.host, error);
  const auto step = [&](auto act) {
    if (!error) act();
  };
  const asio::ip::tcp::endpoint at(host, numeric.port);
  step([&] { impl->acceptor.open(at.protocol(), error); });
  step([&] { impl->acceptor.set_option(asio::socket_base::reuse_address(true), error); });
  step([&] { impl->acceptor.bind(at, error); });
  step([&] { impl->acceptor.listen(asio::socket_base::max_listen_connections, error); });
  if (error)
    return Error(Code::kBadInput,
                 "cannot listen for " + place.option + " at " + address + ": " + error.message());
  error_code ignored;
  numeric.port = impl->acceptor.local_endpoint(ignored).port();
  impl->accept();
  impl->thread = std::thread([&io = impl->io] {
    name_thread("pages");
    io.run();
  });
  const std::string url = "http://" + to_string(numeric);
  return std::unique_ptr<PageServer>(new PageServer(std::move(impl), url));
}

PageServer::PageServer(std::unique_ptr<Impl> impl, std::string url)
    : impl_(std::move(impl)), url_(std::move(url)) {}

PageServer::~PageServer() {
  impl_->io.stop();
  impl_->thread.join();
}

}  // namespace starling::tools
