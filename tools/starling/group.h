#pragma once
// What the processes of a job have in common: its id, its coordinators, and who uses which key.

#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/gateway.h"
#include "core/base/ids.h"
#include "core/base/keys.h"
#include "core/base/result.h"
#include "core/job/job.h"
#include "core/observe/log.h"

namespace starling::tools {

// Of the coordinators' public keys: the same in every process that has the ring's public halves.
JobId job_id_of(const KeyRing& ring);

// "tcp://host:port,host:port": addresses of coordinator-0.. of the ring, in that order.
// Errors: kBadInput  as many as the ring has coordinators are expected.
Result<std::vector<actors::GatewayOptions::Server>> coordinators_at(const KeyRing& ring,
                                                                    const std::string& addresses);

// "host:port" or "tcp://host:port" as "tcp://host:port". Errors: kBadInput  it is neither.
Result<std::string> coordinator_address(std::string text);

// A worker key of the ring that no other process on this machine uses. It is held, through a lock
// on a byte of the key file, by this process and those that it forks; exec gives it back.
class TakenKey {
 public:
  // `name`: this one; empty: the first free one. Errors: kBadInput  there is none.
  static Result<TakenKey> take(const KeyRing& ring, const std::string& path,
                               const std::string& name);
  TakenKey(TakenKey&& other) noexcept;
  TakenKey& operator=(TakenKey&&) = delete;
  ~TakenKey();
  const KeyPair& pair() const { return pair_; }

 private:
  TakenKey(KeyPair pair, int file) : pair_(std::move(pair)), file_(file) {}
  KeyPair pair_;
  int file_;
};

// Errors: kBadInput  none of debug, info, warn, error, off.
Result<LogLevel> log_level(const std::string& text);

std::uint64_t fresh_nonce();  // never 0

}  // namespace starling::tools
