#include "collectives/transport_teardown.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace starling::collectives {
namespace {

using namespace teardown;

// Lives of four processes.
const Incarnation a{1, 11}, b{2, 12}, c{3, 13}, d{4, 14};
const EpochId kOld{1, 1}, kNew{1, 2}, kNewest{1, 3};
const TransportId kTransport{kOld, 1};

// "1.2>0:revoked" for a word about the old transport to rank 0 in epoch 1.2; "open" for its gate.
std::vector<std::string> text_of(const TeardownCommands& commands) {
  std::vector<std::string> texts;
  for (const auto& command : commands) {
    if (const auto* send = std::get_if<teardown::Send>(&command)) {
      CHECK(send->word.epoch == kOld);
      texts.push_back(std::to_string(send->epoch.term) + "." + std::to_string(send->epoch.counter) +
                      ">" + std::to_string(send->to.value()) + ":" +
                      (send->word.revoked ? "revoked" : "cannot"));
    } else {
      CHECK(std::get<Open>(command).transport == kTransport);
      texts.push_back("open");
    }
  }
  return texts;
}
using Texts = std::vector<std::string>;

const TransportLeft kRevoked{kOld, 1, true};

// Three were in the epoch, c died, and d has joined: what c would say is not waited for, and what d
// says is nobody's concern.
TEST_CASE(
    "transport teardown: memory goes when all who live have said that their kernels have ended") {
  TransportTeardown ends;  // of a
  ends.made(kTransport, {a, b, c});
  CHECK(ends.left(kTransport, true)
            .empty());  // nobody is there to be told, and nobody knows who lives
  CHECK(text_of(ends.stands(kNew, {b, d, a}, 2)) == Texts{"1.2>0:revoked"});
  CHECK(ends.on_word(d, kRevoked).empty());
  CHECK(text_of(ends.on_word(b, kRevoked)) == Texts{"open"});
  CHECK(ends.on_word(b, kRevoked).empty());  // once
}

TEST_CASE(
    "transport teardown: words that come before the own kernels have ended count, and open nothing "
    "yet") {
  TransportTeardown ends;
  ends.made(kTransport, {a, b});
  ends.stands(kNew, {a, b}, 0);
  CHECK(ends.on_word(b, kRevoked).empty());
  CHECK(text_of(ends.left(kTransport, false)) == Texts{"1.2>1:cannot", "open"});
}

TEST_CASE("transport teardown: whoever cannot stop its kernels is not waited for") {
  TransportTeardown ends;
  ends.made(kTransport, {a, b});
  ends.stands(kNew, {a, b}, 0);
  ends.left(kTransport, true);
  CHECK(text_of(ends.on_word(b, {kOld, 1, false})) == Texts{"open"});
}

TEST_CASE("transport teardown: who is alone waits for nobody") {
  TransportTeardown ends;
  ends.made(kTransport, {a, b});
  ends.left(kTransport, true);
  CHECK(text_of(ends.stands(kNew, {a}, 0)) == Texts{"open"});
}

// Words that were sent over connections that broke are said again.
TEST_CASE("transport teardown: who lives is who is in the newest epoch that stands") {
  TransportTeardown ends;
  ends.made(kTransport, {a, b, c});
  ends.stands(kOld, {a, b, c}, 0);
  ends.over(kOld);
  CHECK(ends.left(kTransport, true).empty());
  CHECK(text_of(ends.stands(kNew, {a, b, c}, 0)) == Texts{"1.2>1:revoked", "1.2>2:revoked"});
  ends.on_word(b, kRevoked);
  ends.over(kNew);
  CHECK(text_of(ends.stands(kNewest, {b, a}, 1)) == Texts{"1.3>0:revoked", "open"});
}

// An attempt that fails in an epoch that goes on.
TEST_CASE("transport teardown: an older attempt of the same epoch ends as any other") {
  TransportTeardown ends;
  ends.made(kTransport, {a, b});
  ends.stands(kOld, {a, b}, 0);
  CHECK(text_of(ends.left(kTransport, true)) == Texts{"1.1>1:revoked"});
  CHECK(ends.on_word(b, {kOld, 2, true}).empty());
  CHECK(text_of(ends.on_word(b, kRevoked)) == Texts{"open"});
}

TEST_CASE("transport teardown: words of transports that were never made here are nothing") {
  TransportTeardown ends;
  CHECK(ends.on_word(b, kRevoked).empty());
  CHECK(ends.left(kTransport, true).empty());
}

TEST_CASE("transport teardown: old transports are forgotten, one that is in use is not") {
  TransportTeardown ends;
  ends.made(kTransport, {a, b});
  for (std::uint64_t i = 2; i < 100; ++i) {
    ends.made({{1, i}, 1}, {a, b});
    ends.left({{1, i}, 1}, true);
  }
  ends.stands({2, 1}, {a, b}, 0);
  ends.on_word(b, kRevoked);
  CHECK(text_of(ends.left(kTransport, true)) == Texts{"2.1>1:revoked", "open"});
}

}  // namespace
}  // namespace starling::collectives
