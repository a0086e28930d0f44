#pragma once
// The IdentityDesk looks at the tokens of strangers (docs/identity.md) on a thread of its own, and has the gateway let
// them in or refuse them. A second thread asks the identity provider, which may take seconds to answer.

#include <functional>
#include <memory>
#include <string>

#include "actors/gateway/gateway.h"
#include "core/base/result.h"
#include "core/formats/oidc/provider.h"
#include "core/observe/log.h"

namespace starling::actors {

// Threads: any. Its two threads end some time after the desk, which does not wait for the provider's answer.
class IdentityDesk {
 public:
  static constexpr std::size_t kWaiting = 64;  // strangers at most

  // `refused` gets a line for people about a stranger that was refused; few lines, however many try. On the desk's
  // thread, must not block.
  IdentityDesk(oidc::Provider provider, Log log, std::function<void(const std::string&)> refused);
  ~IdentityDesk();
  IdentityDesk(const IdentityDesk&) = delete;
  IdentityDesk& operator=(const IdentityDesk&) = delete;

  // Answers by this gateway from now on, also those who came before.
  void open(const std::shared_ptr<Gateway>& gateway);
  // Queues a stranger until the desk has looked at its token. Where kWaiting strangers wait, the gateway tells this one
  // to ask again; before open() it hears nothing, and asks again by itself.
  void take(Stranger stranger);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace starling::actors
