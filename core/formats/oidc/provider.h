#pragma once
// A Provider tells tokens that let their holders in from others, with the keys of an OIDC provider, which it asks for:
// by discovery (OpenID Connect Discovery 1.0), or where the job says that they are.

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/formats/oidc/token.h"
#include "core/job/identity.h"

namespace starling::oidc {

// Threads: belongs to one thread.
class Provider {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::hours kKeysFor{1};   // keys that are older are asked for again
  static constexpr std::chrono::hours kKeptFor{24};  // the same, while the provider is away
  static constexpr std::chrono::seconds kKeptBetweenAsks{60};
  static constexpr std::chrono::seconds kBetweenAsks{5};    // at least, whatever tokens come
  static constexpr std::chrono::seconds kAnswerWithin{10};  // each of the two answers

  struct Options {
    IdentitySpec rules;
    std::string ca_file;  // of certificates that are trusted instead of the system's; empty: those
    // Reads what is at an address or a file. Empty: over HTTP, or the file.
    std::function<Result<std::string>(const std::string&)> read{};
    // Path of a file for the provider's answer, which counts while nobody answers there; its end follows from the
    // provider. Empty: none is kept.
    std::string kept{};
  };
  // Errors: kBadInput  the CA's file cannot be read, a file of keys is none, or there is no libcurl to ask with.
  static Result<Provider> make(Options options);

  // Whether the token lets its holder in. Blocks while the provider is asked: at the first token, once an hour, and
  // for a key that is not known, at most every five seconds. Errors: kBadInput  it does not, and why (check_token);
  // kUnavailable  that cannot be told now: the provider was asked in vain, or was asked a moment ago. One line, which
  // begins with "identity: ".
  Result<Holder> check(const std::string& token, std::chrono::system_clock::time_point now,
                       Clock::time_point at);

  // The same in parts, for a caller that asks on another thread: check_known() says what is known without asking,
  // nothing where the provider is to be asked; ask() alone may run beside all others; answered() takes what it says,
  // and the tokens that waited for that, whose keys the provider has or has not.
  std::optional<Result<Holder>> check_known(const std::string& token,
                                            std::chrono::system_clock::time_point now,
                                            Clock::time_point at);
  // Where the provider is away: its kept answer, if that is not too old, with KeySet::why_kept.
  Result<KeySet> ask() const;
  void answered(Result<KeySet> keys, const std::vector<std::string>& waiting, Clock::time_point at);

 private:
  explicit Provider(Options options) : options_(std::move(options)) {}
  Result<std::string> keys_address() const;
  Result<KeySet> ask_now() const;
  std::optional<KeySet> kept_keys() const;

  Options options_;
  std::optional<KeySet> keys_;
  Clock::time_point keys_at_;               // when they came
  std::optional<Clock::time_point> asked_;  // when it answered, or was found away
  std::set<std::string>
      missing_;          // keys that tokens named and the provider has not; kKeysMax at most
  std::string why_not_;  // of the last time; empty: it has answered
};

// Returns where a provider of this issuer has its keys, as the answer to its discovery says. Errors: kBadInput  it is
// none, is another issuer's, or names an address that may not be asked (is_provider_address).
Result<std::string> parse_discovery(std::string_view text, const std::string& issuer);

}  // namespace starling::oidc
