#pragma once
// What the stand-in for NCCL does wrong, and when.
//
// FAKE_NCCL=ORDER,...   what goes wrong; read at the first call (or fake_nccl_orders())
// ORDER = NAME@N[/RANK][:MS]   at the N-th (1, 2, ...; * each) such event of this process, of that rank
//
//   at a communicator's making   hang-init          never stands, until it is aborted
//                                slow-init:MS
//                                fail-init          is an error, after a while
//                                refuse-init        is an error at once
//   at a group of transfers      refuse             ncclGroupEnd fails
//   (a warm-up is one)           late:MS            is in the stream only then
//                                lazy:MS            is in the stream once somebody has looked at the
//                                                   communicator, and takes so long there
//                                hang               never ends, and says nothing
//                                error              never ends, and an error is told
//                                garbage            ends well, and what was received is not what was sent
//                                error-later        ends well; an error is told when it is over
//                                hang-call          ncclGroupEnd does not return
//                                die                kill -9 of the process, with half of it sent
//                                fault              a peer's abort before its end is an illegal memory
//                                                   access, which ends the process with status 71
//   at an abort                  slow-abort:MS, hang-abort
//                                abort-waits-for-peers   does not return before all peers have aborted,
//                                                   or are dead
//   at a revoke                  slow-revoke:MS, hang-revoke

#include <cstdint>
#include <string>

namespace starling::collectives::fake {

struct Order {
  bool given = false;
  std::uint32_t ms = 0;  // of those that take a time
  explicit operator bool() const { return given; }
};

// Whether this is what an order with that name waits for: the n-th time that it is asked about
// `name` for that rank. Threads: any.
Order order(const char* name, int rank);
// Replaces all orders. A text that is none ends the process.
void set_orders(const std::string& text);

// One line, and the end of the process with kMisusedStatus: what NCCL itself answers with a crash.
[[noreturn]] void misused(const std::string& why);
inline constexpr int kMisusedStatus = 70;
// The same for what a GPU answers with an error that stays.
[[noreturn]] void faulted(const std::string& why);
inline constexpr int kFaultStatus = 71;

}  // namespace starling::collectives::fake
