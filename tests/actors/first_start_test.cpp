#include "actors/coordinator/first_start.h"

#include <doctest/doctest.h>

namespace starling::actors {
namespace {

using std::chrono::milliseconds;

RaftMessage reply(std::uint32_t from, bool granted, std::uint64_t last_index,
                  std::uint64_t round = 7) {
  RaftMessage m{RaftKind::kRecallReply, from, 1, 0};
  m.granted = granted;
  m.last_index = last_index;
  m.round = round;
  return m;
}

TEST_CASE("first start: begins when all others have answered that they know of no group") {
  FirstStart first(1, 3, 7);
  REQUIRE(first.questions().size() == 2);
  CHECK(first.questions()[0].to == 0);
  CHECK(first.questions()[1].to == 2);
  CHECK(first.questions()[1].kind == RaftKind::kRecall);
  first.take(reply(0, false, 0));
  CHECK_FALSE(first.over(milliseconds(100)));
  REQUIRE(first.questions().size() == 1);
  CHECK(first.questions()[0].to == 2);
  first.take(reply(2, true, 0));
  CHECK(first.over(milliseconds(100)));
  CHECK_FALSE(first.begun());
}

TEST_CASE("first start: one that has the group's log is believed, whenever it says so") {
  FirstStart first(1, 3, 7);
  first.take(reply(0, true, 0));
  first.take(reply(2, true, 5));
  CHECK(first.begun() == 2);
  CHECK_FALSE(first.over(FirstStart::kWait));
}

TEST_CASE("first start: who does not answer is not waited for for ever") {
  FirstStart first(1, 3, 7);
  first.take(reply(0, true, 0));
  CHECK_FALSE(first.over(FirstStart::kWait - milliseconds(1)));
  CHECK(first.over(FirstStart::kWait));
}

TEST_CASE("first start: answers to another life, and other words, are nothing") {
  FirstStart first(1, 3, 7);
  first.take(reply(0, true, 5, /*round=*/6));
  first.take(reply(9, true, 5));
  RaftMessage vote = reply(0, true, 5);
  vote.kind = RaftKind::kVoteReply;
  first.take(vote);
  CHECK_FALSE(first.begun());
  CHECK(first.questions().size() == 2);
}

TEST_CASE("first start: who asks meanwhile hears that nothing is known here") {
  FirstStart first(1, 3, 7);
  RaftMessage question{RaftKind::kRecall, 2, 1, 0};
  question.round = 99;
  const RaftMessage answer = first.answer(question);
  CHECK(answer.kind == RaftKind::kRecallReply);
  CHECK(answer.to == 2);
  CHECK(answer.from == 1);
  CHECK(answer.round == 99);
  CHECK_FALSE(answer.granted);
  // It may begin now, and lead the others, before it answers here.
  first.take(reply(2, true, 1));
  CHECK_FALSE(first.begun());
  first.take(reply(0, true, 0));
  CHECK(first.over(milliseconds(0)));
}

}  // namespace
}  // namespace starling::actors
