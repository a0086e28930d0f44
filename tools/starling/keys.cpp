// `starling keys` makes the keys of a job, and changes the list of keys while it runs.

#include "core/base/keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/base/address.h"
#include "core/base/join_token.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/group.h"
#include "tools/starling/split_keys.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

std::string token_file(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / (name + ".token")).string();
}

Result<> write_line(const std::string& path, const std::string& line, mode_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
  const bool written = fd >= 0 && ::fchmod(fd, mode) == 0 &&
                       ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
                       ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (written) return ok();
  return bad_input("cannot write " + path + ": " + std::strerror(error));
}

Result<> write_token(const KeyRing& ring, const std::string& name, const std::string& at,
                     const std::string& folder) {
  if (auto checked = coordinators_at(ring, at); !checked) return std::move(checked).error();
  STARLING_TRY(token, make_join_token(ring, name, at));
  return write_line(token_file(folder, name), format_join_token(token) + "\n", 0600);
}

// The line for workers that show a token of an identity provider.
Result<> write_public_line(const KeyRing& ring, const std::string& at, const std::string& folder) {
  STARLING_TRY(token, make_public_join_token(ring, at));
  return write_line((fs::path(folder) / kPublicJoin).string(), format_join_token(token) + "\n",
                    0644);
}

}  // namespace

Result<> split_keys(const KeyRing& ring, const std::string& folder, std::uint32_t workers,
                    const std::string& at) {
  if (!at.empty()) {  // checked before any file is written
    if (auto checked = coordinators_at(ring, at); !checked) return std::move(checked).error();
  }
  STARLING_TRY(ring.split(folder));
  for (std::uint32_t i = 0; i < workers && !at.empty(); ++i) {
    STARLING_TRY(write_token(ring, "worker-" + std::to_string(i), at, folder));
  }
  if (at.empty()) return ok();
  return write_public_line(ring, at, folder);
}

namespace {

Result<> make(const KeysCommand& command) {
  const KeyRing ring = KeyRing::generate(command.coordinators, command.workers, command.spares);
  const std::string spares =
      command.spares == 0 ? "" : " and " + std::to_string(command.spares) + " spares";
  if (!command.out.empty()) {
    STARLING_TRY(ring.save(command.out));
    std::printf("%s: keys of %u coordinators%s, %u workers, one client and one admin\n",
                command.out.c_str(), command.coordinators, spares.c_str(), command.workers);
    return ok();
  }
  STARLING_TRY(split_keys(ring, command.split, command.workers, command.at));
  std::printf("%s: a file for each of %u coordinators%s, %u workers, one client and one admin%s\n",
              command.split.c_str(), command.coordinators, spares.c_str(), command.workers,
              command.at.empty() ? "" : "; worker-N.token is all that worker N needs to join");
  return ok();
}

// Returns the files whose owners let others in: coordinators', or the one file with all keys.
Result<std::vector<std::string>> lists_of(const KeysCommand& command) {
  std::error_code error;
  if (!fs::is_directory(command.keys, error)) return std::vector<std::string>{command.keys};
  std::vector<std::string> files;
  for (fs::directory_iterator at(command.keys, error), end; !error && at != end;
       at.increment(error))
    if (role_of(at->path().filename()) == Role::kCoordinator) files.push_back(at->path());
  if (error)
    return bad_input("cannot read the folder of keys " + command.keys + ": " + error.message());
  if (files.empty()) return bad_input("no key file of a coordinator is in " + command.keys);
  return files;
}

Result<> revoke(const KeysCommand& command) {
  if (role_of(command.revoke) == Role::kCoordinator)
    return bad_input(
        "the keys of coordinators are what the job is known by; only those of workers, "
        "clients and admins can be revoked, not " +
        command.revoke);
  STARLING_TRY(files, lists_of(command));
  bool found = false;
  for (const std::string& file : files) {
    STARLING_TRY(ring, KeyRing::load(file));
    // Those who are let in stand in the files of coordinators, and of others nobody reads them.
    if (std::ranges::none_of(ring.numbered("coordinator"),
                             [](const KeyPair& pair) { return !pair.secret_key.empty(); }))
      return bad_input(
          "no coordinator's secret is in " + file +
          ", so it lets nobody in or out: --keys expects the folder that --split made, "
          "or a coordinator's file");
    if (!ring.remove(command.revoke)) continue;
    found = true;
    STARLING_TRY(ring.replace(file));
  }
  if (!found) return bad_input("no key is named " + command.revoke + " in " + command.keys);
  std::error_code ignored;
  if (fs::is_directory(command.keys, ignored)) {  // its secret is of no use any more
    fs::remove(fs::path(command.keys) / command.revoke, ignored);
    fs::remove(token_file(command.keys, command.revoke), ignored);
  }
  std::printf("%s is revoked in %s; a coordinator that runs reads its file again within a second\n",
              command.revoke.c_str(), command.keys.c_str());
  return ok();
}

Result<> add(const KeysCommand& command) {
  std::error_code error;
  if (!fs::is_directory(command.keys, error))
    return bad_input(
        "--add needs the folder that --split made, where the keys of all coordinators are; " +
        command.keys + " is none");
  const Role role = role_of(command.add);
  if (role != Role::kWorker && role != Role::kAdmin)
    return bad_input(
        "--add makes a key of a worker, named worker-N, or of an admin, named admin-NAME, not of " +
        command.add);
  if (role == Role::kAdmin && !command.at.empty())
    return bad_input("a join token is a worker's, and --at is not wanted for an admin");
  STARLING_TRY(files, lists_of(command));
  const KeyPair pair = make_key_pair(command.add);
  KeyRing whole;  // the new file is cut out of it
  for (const std::string& file : files) {
    STARLING_TRY(ring, KeyRing::load(file));
    if (whole.pairs().empty()) whole = ring.public_part();
    STARLING_TRY(ring.add({pair.name, pair.public_key, ""}));
    STARLING_TRY(ring.replace(file));
  }
  STARLING_TRY(whole.add(pair));
  STARLING_TRY(part, whole.part_for(pair.name));
  STARLING_TRY(part.save((fs::path(command.keys) / pair.name).string()));
  if (!command.at.empty()) {
    STARLING_TRY(write_token(whole, pair.name, command.at, command.keys));
  }
  std::printf("%s is added to %s; a coordinator that runs reads its file again within a second\n",
              command.add.c_str(), command.keys.c_str());
  return ok();
}

Result<> print_token(const KeysCommand& command) {
  STARLING_TRY(ring, KeyRing::load_for(command.keys, command.token));
  if (auto checked = coordinators_at(ring, command.at); !checked) return std::move(checked).error();
  STARLING_TRY(token, make_join_token(ring, command.token, command.at));
  std::printf("%s\n", format_join_token(token).c_str());
  return ok();
}

Result<> carry_out(const KeysCommand& command) {
  if (!command.out.empty() || !command.split.empty()) return make(command);
  if (!command.revoke.empty()) return revoke(command);
  return command.add.empty() ? print_token(command) : add(command);
}

}  // namespace

int keys(const KeysCommand& command) {
  const auto done = carry_out(command);
  return done ? 0 : fail(done.error());
}

}  // namespace starling::tools
