#include "tools/starling/completion_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/base/text.h"
#include "core/observe/metrics.h"
#include "tools/starling/completion_request.h"

namespace starling::tools {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Reply = nlohmann::ordered_json;

namespace {

// For a request to come while nothing else is done, and in all for its answer to be taken.
constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::milliseconds kLook{100};  // between two looks whether it is to end
constexpr std::uint32_t kHeaderBytesMax = 16 * 1024;
constexpr std::uint64_t kBodyBytesMax = 16u << 20;
constexpr int kConnectionsMax = 16;

// Bytes of a model need not be UTF-8 where a text ends: U+FFFD stands there.
std::string text_of(const Reply& json) {
  return json.dump(-1, ' ', false, Reply::error_handler_t::replace);
}

std::string plain(beast::string_view view) {
  return {view.data(), view.size()};
}

// In letters of either case.
bool is_word(std::string_view text, std::string_view word) {
  return beast::iequals({text.data(), text.size()}, {word.data(), word.size()});
}

bool is_this_machine(std::string_view host) {
  const auto colon = host.rfind(':');
  const bool has_port = colon != host.npos && host.find(']', colon) == host.npos;
  if (has_port && host.find_first_not_of("0123456789", colon + 1) != host.npos) return false;
  host = host.substr(0, has_port ? colon : host.npos);
  return host == "127.0.0.1" || is_word(host, "localhost") || host == "[::1]";
}

bool is_json(std::string_view content_type) {
  return is_word(trimmed(content_type.substr(0, content_type.find(';'))), "application/json");
}

}  // namespace

struct CompletionServer::Impl {
  Impl(std::string called, const SamplingRule& usual, TextWriter& by)
      : name(std::move(called)), rule(usual), writer(by) {}

  struct Connection;
  void accept();

  const std::string name;
  const SamplingRule rule;
  TextWriter& writer;
  std::function<int()> ended;
  int signal = 0;  // what `ended` gave
  std::uint64_t requests = 0;
  std::uint64_t written = 0;  // completions; no other client is heard during one
  int open = 0;               // connections; before `io`, whose end ends them
  bool accepts = false;       // else the next ones wait in the kernel's queue
  asio::io_context io{1};
  asio::ip::tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
};

// One request and its answer. It owns itself by what is under way.
struct CompletionServer::Impl::Connection : std::enable_shared_from_this<Connection> {
  Connection(asio::ip::tcp::socket socket, Impl& of) : stream(std::move(socket)), server(of) {
    ++server.open;
  }
  ~Connection() { --server.open; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void begin() {
    parser.header_limit(kHeaderBytesMax);
    parser.body_limit(kBodyBytesMax);
    be_patient();
    http::async_read(
        stream, buffer, parser, [self = shared_from_this()](error_code error, std::size_t) {
          self->patience.cancel();
          const bool is_of_http = error.category() == make_error_code(http::error{}).category();
          if (!error)
            self->answer();
          else if (error == http::error::body_limit)
            self->refuse(413, "a request has at most 16 MiB");
          else if (error == http::error::header_limit)
            self->refuse(431, "the head of a request has at most 16 KiB");
          else if (is_of_http && error != http::error::end_of_stream &&
                   error != http::error::partial_message)
            self->refuse(400, "no request of HTTP: " + error.message());
        });
  }
  // Closes a connection whose request does not come.
  void be_patient() {
    patience.expires_after(kPatience);
    patience.async_wait([weak = weak_from_this(), before = server.written](error_code error) {
      const auto self = weak.lock();
      if (error || !self) return;
      if (self->server.written != before) return self->be_patient();  // it may have come meanwhile
      error_code ignored;
      self->stream.socket().close(ignored);
    });
  }

  // Whether all of it was taken. The client that does not read is given up, and so is all once the command ends.
  bool send(std::string_view bytes) {
    const int descriptor = stream.socket().native_handle();
    while (!bytes.empty()) {
      const auto sent = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
        continue;
      }
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return false;
      const auto begun = std::chrono::steady_clock::now();
      pollfd wanted{descriptor, POLLOUT, 0};
      ::poll(&wanted, 1, static_cast<int>(kLook.count()));
      waited += std::chrono::steady_clock::now() - begun;
      if (is_over() || waited > kPatience) return false;
    }
    return true;
  }
  bool is_over() {
    if (server.signal == 0) server.signal = server.ended();
    return server.signal != 0;
  }
  // Whether the client has closed its side, whatever else it sent before.
  bool is_gone() {
    pollfd asked{stream.socket().native_handle(), POLLRDHUP, 0};
    return ::poll(&asked, 1, 0) > 0;
  }

  void reply(int status, const std::string& type, const std::string& body) {
    http::response<http::empty_body> response{static_cast<http::status>(status), 11};
    response.set(http::field::content_type, type);
    if (status == 405) response.set(http::field::allow, "GET, HEAD, POST");
    response.keep_alive(false);
    response.content_length(body.size());
    std::ostringstream head;
    head << response;
    send(head.str() + (parser.get().method() == http::verb::head ? "" : body));
  }
  void refuse(int status, const std::string& why) {
    reply(status, "application/json",
          text_of({{"error",
                    {{"message", why},
                     {"type", "invalid_request_error"},
                     {"param", nullptr},
                     {"code", nullptr}}}}) +
              "\n");
  }

  void answer() {
    const auto& request = parser.get();
    const std::string asked = plain(request.target()), target = asked.substr(0, asked.find('?'));
    const bool asks = request.method() == http::verb::get || request.method() == http::verb::head;
    if (!is_this_machine(plain(request[http::field::host])))
      return refuse(403, "Host must be 127.0.0.1 or localhost");
    if (target == "/v1/models") {
      if (!asks) return refuse(405, "/v1/models is read with GET");
      const Reply model{{"id", server.name}, {"object", "model"}, {"owned_by", "starling"}};
      return reply(200, "application/json",
                   text_of({{"object", "list"}, {"data", Reply::array({model})}}) + "\n");
    }
    const bool chat = target == "/v1/chat/completions";
    if (!chat && target != "/v1/completions")
      return refuse(404,
                    "completions are at POST /v1/completions and /v1/chat/completions, the model's "
                    "name at GET /v1/models");
    if (request.method() != http::verb::post) return refuse(405, target + " is asked with POST");
    if (!is_json(plain(request[http::field::content_type])))
      return refuse(415, "Content-Type must be application/json");
    kind = chat ? Completions::kChat : Completions::kText;
    complete(request.body());
  }

  // One that is whole, or a piece of a stream.
  Reply completion(const std::string& text, const Reply& finish_reason, bool piece) const {
    Reply choice{{"index", 0}, {"logprobs", nullptr}, {"finish_reason", finish_reason}};
    const bool chat = kind == Completions::kChat;
    if (!chat)
      choice["text"] = text;
    else if (!piece)
      choice["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
    else
      choice["delta"] = finish_reason.is_null() ? Reply{{"content", text}} : Reply::object();
    const char* const object = !chat   ? "text_completion"
                               : piece ? "chat.completion.chunk"
                                       : "chat.completion";
    return {{"id", (chat ? "chatcmpl-" : "cmpl-") + std::to_string(number)},
            {"object", object},
            {"created", static_cast<std::int64_t>(unix_time())},
            {"model", server.name},
            {"choices", Reply::array({choice})}};
  }
  bool event(const Reply& json) { return send("data: " + text_of(json) + "\n\n"); }
  // A chat's stream begins with the role of what follows.
  bool begin_stream() {
    if (!send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
              "Connection: close\r\n\r\n"))
      return false;
    if (kind == Completions::kText) return true;
    Reply first = completion("", nullptr, /*piece=*/true);
    first["choices"][0]["delta"] = {{"role", "assistant"}, {"content", ""}};
    return event(first);
  }

  void complete(const std::string& body) {
    auto asked = parse_completion(kind, body, server.name, server.rule);
    if (!asked) return refuse(400, asked.error().text());
    CompletionRequest& request = asked.value();
    const auto begun = kind == Completions::kChat ? server.writer.begin_chat(request.messages)
                                                  : server.writer.begin(request.prompt);
    if (!begun) return refuse(400, begun.error().text());
    number = ++server.requests;
    if (request.writing.tokens == 0)  // to the end of the context, one token at least
      request.writing.tokens = static_cast<std::uint32_t>(std::max<std::int64_t>(
          1,
          std::int64_t{server.writer.context()} - static_cast<std::int64_t>(begun.value().size())));
    std::string text = request.echo ? request.prompt : "";
    if (request.stream) {
      if (!begin_stream()) return;
      if (!text.empty() && !event(completion(text, nullptr, /*piece=*/true))) return;
    }
    const auto written =
        server.writer.write(begun.value(), request.writing, [&](std::string_view ready) {
          if (is_over() || is_gone()) return false;
          if (!request.stream) {
            text += ready;
            return true;
          }
          return ready.empty() || event(completion(std::string(ready), nullptr, /*piece=*/true));
        });
    ++server.written;
    if (!written) {
      if (request.stream)
        event({{"error", {{"message", written.error().text()}, {"type", "server_error"}}}});
      else
        refuse(500, written.error().text());
      return;
    }
    if (written.value().end == Written::End::kBroken) return;
    const std::size_t before = begun.value().size(), after = written.value().tokens;
    const Reply usage{
        {"prompt_tokens", before}, {"completion_tokens", after}, {"total_tokens", before + after}};
    Reply last = completion(request.stream ? "" : text,
                            written.value().end == Written::End::kStop ? "stop" : "length",
                            /*piece=*/request.stream);
    if (!request.stream) {
      last["usage"] = usage;
      return reply(200, "application/json", text_of(last) + "\n");
    }
    if (request.usage_at_end) last["usage"] = usage;
    if (event(last)) send("data: [DONE]\n\n");
  }

  beast::tcp_stream stream;
  Impl& server;
  asio::steady_timer patience{server.io};
  std::chrono::steady_clock::duration waited{};  // for the client to take the answer
  std::uint64_t number = 0;
  Completions kind = Completions::kText;
  beast::flat_buffer buffer;
  http::request_parser<http::string_body> parser;
};

// The next connection, unless there are kConnectionsMax.
void CompletionServer::Impl::accept() {
  accepts = open < kConnectionsMax;
  if (!accepts) return;
  acceptor.async_accept([this](error_code error, asio::ip::tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) std::make_shared<Connection>(std::move(socket), *this)->begin();
    if (!error) return accept();
    // accept() found no free descriptor: connections that end give some back.
    pause.expires_after(kLook);
    pause.async_wait([this](error_code over) {
      if (!over) accept();
    });
  });
}

Result<std::unique_ptr<CompletionServer>> CompletionServer::make(std::uint16_t port,
                                                                 std::string name,
                                                                 const SamplingRule& rule,
                                                                 TextWriter& writer) {
  auto impl = std::make_unique<Impl>(std::move(name), rule, writer);
  const asio::ip::tcp::endpoint at(asio::ip::address_v4::loopback(), port);
  error_code error;
  const auto step = [&](auto act) {
    if (!error) act();
  };
  step([&] { impl->acceptor.open(at.protocol(), error); });
  step([&] { impl->acceptor.set_option(asio::socket_base::reuse_address(true), error); });
  step([&] { impl->acceptor.bind(at, error); });
  step([&] { impl->acceptor.listen(asio::socket_base::max_listen_connections, error); });
  if (error)
    return bad_input("cannot listen for --serve at 127.0.0.1:" + std::to_string(port) + ": " +
                     error.message());
  error_code ignored;
  const auto bound = impl->acceptor.local_endpoint(ignored).port();
  return std::unique_ptr<CompletionServer>(new CompletionServer(
      std::move(impl), "http://127.0.0.1:" + std::to_string(bound) + "/v1/completions"));
}

int CompletionServer::run(const std::function<int()>& ended) {
  impl_->ended = ended;
  while (impl_->signal == 0 && (impl_->signal = ended()) == 0) {
    if (!impl_->accepts) impl_->accept();
    impl_->io.restart();
    impl_->io.run_for(kLook);
  }
  return impl_->signal;
}

CompletionServer::CompletionServer(std::unique_ptr<Impl> impl, std::string url)
    : impl_(std::move(impl)), url_(std::move(url)) {}

CompletionServer::~CompletionServer() = default;

}  // namespace starling::tools
