#pragma once
// Joining leads a life into the group, from its first word to its first version (docs/design.md,
// section 6). It owns the name of this life, whether coordinators have let it in, and where its
// state is to come from. Once there is a state, joining is over for good.
//
//   silent        the process is not up yet
//   asking        it says its Join until a coordinator answers
//   waiting       it is let in; no plan with it runs here
//   initialising  member of a fresh plan: its state is built, or loaded from a checkpoint
//   initialised   that is done; the connections of the epoch are not all there
//   joiner        of a prepared or forced plan: the first gather frame brings a version
//   over          it has a state
//
// Threads: none; a value.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/check.h"
#include "core/base/ids.h"
#include "core/wire/messages.h"

namespace starling::elastic {

class Joining {
 public:
  const Incarnation& self() const { return join_.who; }
  bool welcomed() const { return state_ > State::kAsking; }
  // Whether this life has no state, and no plan with it runs here.
  bool outside() const { return state_ <= State::kWaiting; }
  bool initialising() const { return state_ == State::kInitialising; }
  bool joiner() const { return state_ == State::kJoiner; }
  bool over() const { return state_ == State::kOver; }
  std::uint32_t load_left() const { return load_left_; }  // segments, from a checkpoint

  void ask(Join join) {
    join_ = std::move(join);
    state_ = State::kAsking;
  }
  // The Join that is to be sent again; null once it is answered.
  const Join* question() const { return state_ == State::kAsking ? &join_ : nullptr; }
  // A coordinator let this life in, or a committed plan has it: the welcome may be lost.
  void welcome(const Incarnation& self) {
    join_.who = self;
    state_ = std::max(state_, State::kWaiting);
  }

  // This life enters a fresh plan and loads so many segments, none if the state is built.
  void initialise(std::uint32_t load_left) {
    STARLING_CHECK(outside());
    state_ = State::kInitialising;
    load_left_ = load_left;
  }
  // The others wait until all of the state is there, whatever was read of it.
  void loading(std::uint32_t left) {
    if (load_left_ != 0) load_left_ = std::clamp<std::uint32_t>(left, 1, load_left_);
  }
  void initialised() {
    STARLING_CHECK(initialising());
    state_ = State::kInitialised;
    load_left_ = 0;
  }
  // This life enters a prepared or forced plan without a state.
  void join() {
    STARLING_CHECK(outside());
    state_ = State::kJoiner;
  }
  void finish() { state_ = State::kOver; }
  // The epoch is over here: a life without a state waits for another plan.
  void stop() {
    if (outside() || over()) return;
    state_ = State::kWaiting;
    load_left_ = 0;
  }

  void check_invariants() const {
    if (welcomed()) STARLING_CHECK(join_.who.nonce != 0);
    if (load_left_ != 0) STARLING_CHECK(initialising());
  }

 private:
  enum class State : std::uint8_t {  // in the order in which a life comes to them
    kSilent,
    kAsking,
    kWaiting,
    kInitialising,
    kInitialised,
    kJoiner,
    kOver,
  };

  State state_ = State::kSilent;
  Join join_;  // `who`: this life, with its number once it is welcomed
  std::uint32_t load_left_ = 0;
};

}  // namespace starling::elastic
