#include "tools/starling/worker_door.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/address.h"
#include "core/base/join_token.h"
#include "tools/starling/run_place.h"

namespace starling::tools {
namespace {

// Makes a key for this life, and shows a token for it.
Result<WorkerDoor> door_by_identity(const WorkerCommand& command) {
  if (!command.keys.empty() || !command.name.empty())
    return Error(
        Code::kBadInput,
        "--identity-token has a worker make its key and name itself; --keys and --name are "
        "not wanted beside it");
  STARLING_TRY(text, join_text(command.join));
  if (!is_join_token(text))
    return Error(Code::kBadInput,
                 "--identity-token needs --join of a public join line, as starling keys --split "
                 "--at writes it: join.public");
  STARLING_TRY(token, parse_join_token(text));
  if (!token.is_public())
    return Error(Code::kBadInput,
                 "the join token has a worker's key; --identity-token is not wanted beside it, but "
                 "join.public is");
  STARLING_TRY(read_identity_token(command.identity_token));
  return WorkerDoor{token.addresses, TakenKey::make(token)};
}

}  // namespace

Result<WorkerDoor> door_of(const WorkerCommand& command) {
  if (!command.identity_token.empty()) return door_by_identity(command);
  if (std::error_code error; std::filesystem::is_directory(command.join, error)) {
    STARLING_TRY(run, place_of_run(command.join, command.keys));
    STARLING_TRY(key, TakenKey::take(run.keys, command.name));
    return WorkerDoor{std::move(run.addresses), std::move(key)};
  }
  STARLING_TRY(text, join_text(command.join));
  if (is_join_token(text)) {
    if (!command.keys.empty())
      return Error(Code::kBadInput, "a join token has a key; --keys is not wanted beside it");
    STARLING_TRY(token, parse_join_token(text));
    if (token.is_public())
      return Error(Code::kBadInput,
                   "the join line is a public one, without a key; --identity-token says which file "
                   "has a token to show");
    STARLING_TRY(key, TakenKey::take(token));
    return WorkerDoor{token.addresses, std::move(key)};
  }
  if (command.keys.empty())
    return Error(Code::kBadInput, "--keys is needed beside addresses; a join token needs none");
  if (auto checked = parse_addresses(text); !checked) return std::move(checked).error();
  STARLING_TRY(key, TakenKey::take(command.keys, command.name));
  return WorkerDoor{text, std::move(key)};
}

}  // namespace starling::tools
