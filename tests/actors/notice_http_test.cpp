#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "actors/notices/answers.h"
#include "actors/notices/http.h"
#include "actors/notices/watch.h"

namespace starling::actors {
namespace {

// Takes one connection, reads up to the end of the request's head, hands head and connection over.
class OneAnswer {
 public:
  using Talk = std::function<void(int connection, const std::string& head)>;

  explicit OneAnswer(Talk talk) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener_, 1) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    base = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, talk = std::move(talk)] {
      const int connection = ::accept(listener_, nullptr, nullptr);
      std::string head;
      for (char c; head.find("\r\n\r\n") == head.npos && ::read(connection, &c, 1) == 1;) head += c;
      talk(connection, head);
      ::close(connection);
    });
  }
  ~OneAnswer() {
    thread_.join();
    ::close(listener_);
  }

  std::string base;

 private:
  int listener_ = -1;
  std::thread thread_;
};

void say(int connection, const std::string& text) {
  // MSG_NOSIGNAL: the client may have had enough.
  for (std::size_t at = 0; at < text.size();) {
    const auto n = ::send(connection, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return;
    at += static_cast<std::size_t>(n);
  }
}

void until_closed(int connection) {
  char byte;
  while (::read(connection, &byte, 1) > 0) {
  }
}

HttpRequest a_request() {
  HttpRequest request;
  request.method = "PUT";
  request.target = "/latest/api/token?x=1";
  request.headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}};
  return request;
}

Result<HttpAnswer> ask(const OneAnswer& server, const HttpRequest& request) {
  auto client = HttpClient::make(server.base);
  REQUIRE(client);
  return client.value()->ask(request);
}

TEST_CASE("http: a request arrives as it is meant, and its answer comes back") {
  std::promise<std::string> head;
  OneAnswer server([&](int connection, const std::string& text) {
    head.set_value(text);
    say(connection, "HTTP/1.1 200 OK\r\nETag: e1\r\nContent-Length: 5\r\n\r\ntoken");
  });
  const auto answer = ask(server, a_request());
  REQUIRE(answer);
  CHECK(answer.value().status == 200);
  CHECK(answer.value().body == "token");
  CHECK(answer.value().etag == "e1");
  const std::string text = head.get_future().get();
  CHECK(text.starts_with("PUT /latest/api/token?x=1 HTTP/1.1\r\n"));
  CHECK(text.find("Host: " + server.base.substr(7) + "\r\n") != text.npos);
  CHECK(text.find("X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n") != text.npos);
  CHECK(text.find("Content-Length: 0\r\n") != text.npos);
}

TEST_CASE("http: pieces and an end without a length make an answer, too") {
  const char* const ways[] = {
      "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n2\r\nne\r\n0\r\n\r\n",
      "HTTP/1.0 404 Not Found\r\n\r\nnone"};
  for (const char* way : ways) {
    OneAnswer server([&](int connection, const std::string&) { say(connection, way); });
    const auto answer = ask(server, a_request());
    REQUIRE(answer);
    CHECK(answer.value().status == 404);
    CHECK(answer.value().body == "none");
  }
}

TEST_CASE("http: what is no answer, or too large, is corrupt, and nobody there is unavailable") {
  struct Case {
    const char* name;
    std::string said;
    Code code;
  };
  const std::string head = "HTTP/1.1 200 OK\r\n";
  const std::string large(kAnswerBytesMax + 1, 'x');
  const Case cases[] = {
      {"not HTTP", "SSH-2.0-OpenSSH\r\n\r\n", Code::kCorrupt},
      {"length above the limit",
       head + "Content-Length: " + std::to_string(large.size()) + "\r\n\r\n" + large,
       Code::kCorrupt},
      {"body above the limit", head + "\r\n" + large, Code::kCorrupt},
      {"head above the limit", head + "X: " + large + "\r\n\r\n", Code::kCorrupt},
      {"closed at once", "", Code::kUnavailable},
      {"cut short", head + "Content-Length: 5\r\n\r\nto", Code::kUnavailable},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.name));
    OneAnswer server([&](int connection, const std::string&) { say(connection, c.said); });
    const auto answer = ask(server, a_request());
    REQUIRE(!answer);
    CHECK(answer.error().code() == c.code);
  }
}

TEST_CASE("http: an answer that does not come in time is none") {
  OneAnswer server([](int connection, const std::string&) {
    say(connection, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntok");
    until_closed(connection);
  });
  HttpRequest request = a_request();
  request.timeout = std::chrono::milliseconds(20);
  const auto answer = ask(server, request);
  REQUIRE(!answer);
  CHECK(answer.error().code() == Code::kUnavailable);
}

// Goal: a worker's end never waits for a metadata service. Method: it is cancelled when the service
// has the request and says nothing; without the cancel this test would take an hour.
TEST_CASE("http: a cancel ends what is under way and all that would follow") {
  std::promise<void> asked;
  OneAnswer server([&](int connection, const std::string&) {
    asked.set_value();
    until_closed(connection);
  });
  auto client = HttpClient::make(server.base);
  REQUIRE(client);
  std::thread other([&] {
    asked.get_future().wait();
    client.value()->cancel();
  });
  HttpRequest request = a_request();
  request.timeout = std::chrono::hours(1);
  CHECK_FALSE(client.value()->ask(request));
  other.join();
  CHECK_FALSE(client.value()->wait(std::chrono::hours(1)));
  CHECK_FALSE(client.value()->ask(request));
}

TEST_CASE("http: a cancel ends a wait") {
  auto client = HttpClient::make("http://127.0.0.1:1");
  REQUIRE(client);
  std::thread other([&] { client.value()->cancel(); });
  CHECK_FALSE(client.value()->wait(std::chrono::hours(1)));
  other.join();
}

TEST_CASE("http: a base is a numeric address") {
  for (const char* good : {"http://169.254.169.254", "http://127.0.0.1:8080", "http://[::1]:80",
                           "http://[fd00:ec2::254]"})
    CHECK_MESSAGE(HttpClient::make(good), good);
  for (const char* bad : {"", "169.254.169.254", "https://127.0.0.1", "http://", "http://localhost",
                          "http://127.0.0.1:", "http://127.0.0.1:0", "http://127.0.0.1:65536",
                          "http://127.0.0.1:80/", "http://127.0.0.1/x", "http://::1:80x"}) {
    CAPTURE(bad);
    const auto client = HttpClient::make(bad);
    REQUIRE(!client);
    CHECK(client.error().code() == Code::kBadInput);
  }
}

TEST_CASE("notices: the firmware says whose machine this is") {
  struct Case {
    const char* file;
    const char* text;
    std::optional<Cloud> cloud;
  };
  const Case cases[] = {
      {"sys_vendor", "Amazon EC2\n", Cloud::kAws},
      {"bios_version", "4.11.amazon\n", Cloud::kAws},
      {"product_name", "Google Compute Engine\n", Cloud::kGcp},
      {"chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", Cloud::kAzure},
      {"sys_vendor", "Microsoft Corporation\n", {}},  // Hyper-V anywhere
      {"sys_vendor", "", {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.file);
    CAPTURE(c.text);
    std::string folder =
        (std::filesystem::temp_directory_path() / "starling-firmware-XXXXXX").string();
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    std::ofstream(folder + "/" + c.file) << c.text;
    CHECK(cloud_here(folder) == c.cloud);
    std::filesystem::remove_all(folder);
  }
  CHECK_FALSE(cloud_here("/nowhere"));
}

}  // namespace
}  // namespace starling::actors
