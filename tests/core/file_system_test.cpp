#include "core/base/file_system.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace starling {
namespace {

TEST_CASE("a lock that another one has is told from a file system without locks") {
  CHECK(lock_of(0, "/a").value());
  CHECK_FALSE(lock_of(EWOULDBLOCK, "/a").value());
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP}) {
    const auto refused = lock_of(error, "/lustre/out");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::kBadInput);
    CHECK(refused.error().text().find("has no file locks") != std::string::npos);
    CHECK(refused.error().text().find("/lustre/out") != std::string::npos);
  }
  CHECK(lock_of(EIO, "/a").error().text().find("cannot be locked") != std::string::npos);
}

TEST_CASE("a file is locked once") {
  std::string path = (std::filesystem::temp_directory_path() / "starling-lock-XXXXXX").string();
  const int first = ::mkostemp(path.data(), O_CLOEXEC);
  const int second = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  CHECK(lock_file(first, path).value());
  CHECK_FALSE(lock_file(second, path).value());
  ::close(first);
  CHECK(lock_file(second, path).value());
  ::close(second);
  std::filesystem::remove(path);
}

TEST_CASE("a folder that a file system does not sync is no error, and another reason is one") {
  CHECK(folders_are_not_synced(EINVAL));
  CHECK_FALSE(folders_are_not_synced(EIO));
  CHECK_FALSE(folders_are_not_synced(ENOSPC));
  const int folder = ::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(sync_folder(folder));
  ::close(folder);
  CHECK_FALSE(sync_folder(folder));
}

// Goal: a Secret that Kubernetes mounts for a pod of another user than root (mode 0440, of root and the pod's
// group) can be used, and nothing else that a file of one's own could not.
TEST_CASE("a file of secrets is the reader's alone, or its owner's and a group's that reads it") {
  constexpr uid_t kReader = 10001;
  struct Case {
    mode_t mode;
    uid_t owner;
    bool open;
  };
  for (const Case& c :
       {Case{0600, kReader, false}, Case{0400, kReader, false}, Case{0440, kReader, true},
        Case{0604, kReader, true}, Case{0620, kReader, true}, Case{0440, 0, false},
        Case{0444, 0, true}, Case{0441, 0, true}, Case{0460, 0, true}}) {
    struct stat file {};
    file.st_mode = S_IFREG | c.mode;
    file.st_uid = c.owner;
    CHECK_MESSAGE(is_open_to_others(file, kReader) == c.open, c.mode << " of " << c.owner);
  }
}

}  // namespace
}  // namespace starling
