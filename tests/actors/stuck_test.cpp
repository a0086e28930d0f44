#include "actors/worker/stuck.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/actors/hanging_device.h"

namespace starling::actors {
namespace {

using std::chrono::milliseconds;

struct StuckRig {
  std::shared_ptr<HangingDevice> device = std::make_shared<HangingDevice>();
  std::atomic<int> lost{0};
  std::vector<std::string> told;
  std::atomic<int> lines{0};
  std::string why;

  std::unique_ptr<Stuck> watch(StuckTimes times) {
    auto stuck = std::make_unique<Stuck>(
        [this](const std::string& text) { why = text, ++lost; },
        [this](const std::string& line) { told.push_back(line), ++lines; }, times);
    stuck->watch(device);
    return stuck;
  }
};

TEST_CASE("a worker whose path hangs trains on while its device answers") {
  StuckRig rig;
  rig.watch({.answer = std::chrono::minutes(2)})->on_stuck("it hangs", 3);
  CHECK(rig.lost == 0);
  CHECK(rig.told == std::vector<std::string>{"it hangs"});
}

TEST_CASE("a worker whose device hangs as well ends, at once if nobody is before it") {
  StuckRig rig;
  rig.device->hang();
  rig.watch({.answer = milliseconds(20), .turn = std::chrono::hours(1)})->on_stuck("it hangs", 0);
  CHECK(rig.lost == 1);
  CHECK(rig.why == "it hangs; its device does not answer");
  CHECK(rig.told == std::vector<std::string>{"it hangs, and its device does not answer"});
  rig.device->go_on();
}

TEST_CASE("whoever is not the first waits for its turn, and stays if its device answers by then") {
  StuckRig rig;
  rig.device->hang();
  const auto stuck = rig.watch({.answer = milliseconds(20), .turn = std::chrono::hours(1)});
  std::thread waiting([&] { stuck->on_stuck("it hangs", 1); });
  while (rig.lines == 0) std::this_thread::yield();
  rig.device->go_on();
  waiting.join();
  CHECK(rig.lost == 0);
  CHECK(rig.told.back() == "the device answers again");
}

TEST_CASE("before there is a device nothing is asked of it") {
  StuckRig rig;
  Stuck stuck([&](const std::string&) { ++rig.lost; },
              [&](const std::string& line) { rig.told.push_back(line); });
  stuck.on_stuck("it hangs", 0);
  CHECK(rig.lost == 0);
  CHECK(rig.told == std::vector<std::string>{"it hangs"});
}

}  // namespace
}  // namespace starling::actors
