#pragma once
// What goes wrong in a run: at random times, in bursts, and at chosen moments of a worker's life.

#include <cstdint>
#include <functional>

#include "core/wire/messages.h"
#include "tests/sim/random.h"
#include "tests/sim/settings.h"

namespace starling::sim {

class World;
class WorkerProcess;
enum class Moment : std::uint8_t;

class FaultInjector {
 public:
  explicit FaultInjector(World& world);

  void start();
  void on_moment(WorkerProcess& process, Moment moment);

 private:
  // Calls `action` at random times, `rate` times a second on average, until the faults end.
  void repeat(double rate, void (FaultInjector::*action)());
  void kill_one();
  void kill_several();
  void pause_one();
  void hang_one();
  void partition();
  void cut_pair();
  void seclude_one();
  void make_coordinators_late();
  void break_connection();
  void stall_connection();
  void lose_transport();
  void flip_one();
  void join();
  void leave();
  void crash_coordinator();
  void crash_leader_and_worker();
  void wipe(std::uint32_t index);
  void false_start();
  void ask_checkpoint();
  void end_run();
  void steer();
  void change_rate();
  void ask(AdminAsked asked, int times);
  bool kill(WorkerProcess& process, const char* why);
  WorkerProcess* any_worker();
  Micros burst_delay() { return random_.range(0, 20 * kMs); }

  World& world_;
  Random random_, wipes_, cuts_, admin_, rates_;
  std::uint32_t kills_ = 0;
};

}  // namespace starling::sim
