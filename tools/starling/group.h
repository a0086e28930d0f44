#pragma once
// The processes of a job share its id and coordinators, and each takes one of its keys.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/gateway.h"
#include "core/base/address.h"
#include "core/base/ids.h"
#include "core/base/join_token.h"
#include "core/base/keys.h"
#include "core/base/result.h"
#include "core/job/job.h"
#include "core/observe/log.h"
#include "core/wire/messages.h"
#include "tools/starling/key_lock.h"

namespace starling::tools {

// Made of the coordinators' public keys: equal wherever the ring's public halves are.
JobId job_id_of(const KeyRing& ring);

// Reads "tcp://host:port,host:port": addresses of coordinator-0.. of the ring, in that order. Spares
// may have none yet: theirs are empty. Errors: kBadInput  those of all founders are expected, none
// that is of no coordinator, and none that means all addresses of a machine.
Result<std::vector<actors::GatewayOptions::Server>> coordinators_at(const KeyRing& ring,
                                                                    const std::string& addresses);

// What a worker's life has heard of where coordinators are reached is kept for its next life, in the
// environment, where a process image leaves it to the next one. Not while other threads run.
void pass_on(const Seats& seats);
// Takes that out of the environment, so that no other process begins with it.
Seats passed_on();
// Adds seats to those that are known; a later address of a place counts.
void add_seats(const Seats& seats, Seats& known);

// Returns where to listen, as libzmq wants it: "tcp://" and the number of an address
// of this machine. Errors: kBadInput  no address, or a host that is not known.
Result<std::string> address_to_listen(const std::string& text);
// Resolves --host: a name is looked up once, so that all processes of a run mean the same.
Result<std::string> host_of(const std::string& host);

// Returns this machine's address as the coordinators see it. Their names may not be known yet, so
// it asks again for `patience`. Errors: kUnavailable  none is known, and why.
Result<std::string> own_address(const std::vector<actors::GatewayOptions::Server>& coordinators,
                                std::chrono::milliseconds patience);

// Returns where others on this machine or outside reach a listener: if it listens
// everywhere, the address of the interface that leads out of the machine.
std::string address_to_tell(const Address& listens);

// Reads --join: returns addresses or a token as they are, or the token that a file holds.
// Errors: kBadInput  it is none of them, or others than its owner can read the file, unless it is public.
Result<std::string> join_text(const std::string& value);
// Reads a token of an identity provider, which others may renew at any time. Any thread. Errors: kBadInput  there is
// none, or it is too large; one line that begins with "identity: ".
Result<std::string> read_identity_token(const std::string& path);

// A TakenKey is what a process needs of the keys of a job, with
// its own key. No other process on this machine uses that one.
class TakenKey {
 public:
  // Takes from a key file, or from a folder of split keys. `name`: this key;
  // empty: a worker's first free one. Errors: kBadInput  there is none.
  static Result<TakenKey> take(const std::string& path, const std::string& name);
  // Takes from a join token with a worker's pair.
  static Result<TakenKey> take(const JoinToken& token);
  // Makes a pair for this life beside the public halves of a join token; its secret is in no file.
  static TakenKey make(const JoinToken& token);
  const KeyPair& pair() const { return pair_; }
  const KeyRing& ring() const { return ring_; }  // at least its own pair and the coordinators'

 private:
  TakenKey(KeyPair pair, KeyRing ring, KeyLock lock)
      : pair_(std::move(pair)), ring_(std::move(ring)), lock_(std::move(lock)) {}
  KeyPair pair_;
  KeyRing ring_;
  KeyLock lock_;
};

// Errors: kBadInput  none of debug, info, warn, error, off.
Result<LogLevel> log_level(const std::string& text);

}  // namespace starling::tools
