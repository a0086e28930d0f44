#include "core/formats/storage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "core/base/check.h"
#include "core/base/s3_place.h"
#include "core/base/system_error.h"
#include "core/formats/s3/client.h"
#include "core/formats/s3/store.h"
#include "core/formats/synced_file.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

class OpenFile : public StoredObject {
 public:
  OpenFile(std::string path, int file, std::uint64_t size)
      : path_(std::move(path)), file_(file), size_(size) {}
  ~OpenFile() override { ::close(file_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  std::uint64_t size() const override { return size_; }
  const std::string& place() const override { return path_; }

  Result<> read(std::uint64_t from, std::span<std::uint8_t> out) const override {
    while (!out.empty()) {
      const ssize_t n = ::pread(file_, out.data(), out.size(), static_cast<off_t>(from));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error("cannot read", path_);
      if (n == 0)
        return Error(Code::kBadInput, "file ended at byte " + std::to_string(from) +
                                          "; it was longer when opened; " + path_);
      from += static_cast<std::uint64_t>(n);
      out = out.subspan(static_cast<std::size_t>(n));
    }
    return ok();
  }

 private:
  const std::string path_;
  const int file_;
  const std::uint64_t size_;
};

class Folder : public Storage {
 public:
  explicit Folder(std::string dir) : dir_(std::move(dir)) {}

  Result<> make() override {
    std::error_code error;
    fs::create_directories(dir_, error);
    if (error)
      return Error(Code::kBadInput,
                   "checkpoint folder cannot be made (" + error.message() + "); " + dir_);
    const std::string probe = ".probe-" + std::to_string(::getpid());
    const ByteView nothing;
    auto written = put(probe, std::span<const ByteView>(&nothing, 1));
    (void)remove(probe);
    if (!written) return std::move(written).error().in("expected a checkpoint folder to write in");
    return ok();
  }

  Result<> put(const std::string& name, std::span<const ByteView> pieces) override {
    const fs::path path = place(name);
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      return Error(Code::kBadInput,
                   "cannot make " + path.parent_path().string() + ": " + error.message());
    return write_synced_file(path, pieces);
  }

  Result<bool> put_new(const std::string& name, const std::string& text) override {
    return write_new_synced_file(place(name), as_bytes(std::span<const char>(text)));
  }

  Result<std::optional<std::string>> get(const std::string& name, std::size_t max) const override {
    STARLING_TRY(file, open(name));
    if (!file) return std::optional<std::string>();
    // The size is that of the moment: what is being written grows meanwhile, and is read as it is.
    std::string text(std::min<std::uint64_t>(file->size(), std::uint64_t{max} + 1), '\0');
    STARLING_TRY(file->read(0, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}));
    return std::optional<std::string>(std::move(text));
  }

  Result<std::unique_ptr<StoredObject>> open(const std::string& name) const override {
    return open_file(place(name));
  }

  Result<std::optional<std::uint64_t>> size(const std::string& name) const override {
    struct stat status {};
    if (::stat(place(name).c_str(), &status) == 0)
      return std::optional(static_cast<std::uint64_t>(status.st_size));
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<std::uint64_t>();
    return system_error("cannot inspect", place(name));
  }

  Result<std::vector<std::string>> folders() const override {
    std::vector<std::string> found;
    std::error_code error;
    if (!fs::exists(dir_, error) && !error) return found;
    for (fs::directory_iterator it(dir_, error), end; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      if (it->is_directory(ignored)) found.push_back(it->path().filename().string());
    }
    if (error)
      return Error(Code::kBadInput,
                   "checkpoint folder cannot be read (" + error.message() + "); " + dir_);
    return found;
  }

  Result<> replace(const std::string& name, const std::string& text) override {
    const ByteView bytes = as_bytes(std::span<const char>(text));
    return put(name, std::span<const ByteView>(&bytes, 1));
  }

  Result<> remove(const std::string& name) override {
    std::error_code error;
    fs::remove(place(name), error);
    if (!error || error == std::errc::no_such_file_or_directory) return ok();
    return Error(Code::kBadInput, "cannot remove " + place(name) + ": " + error.message());
  }
  Result<> remove_folder(const std::string& folder) override {
    std::error_code ignored;
    fs::remove_all(place(folder), ignored);
    return ok();
  }

  std::string place(const std::string& name) const override {
    return name.empty() ? dir_ : (fs::path(dir_) / name).string();
  }

 private:
  const std::string dir_;
};

}  // namespace

Result<std::string> storage_named(const std::string& dir) {
  if (!s3::is_place(dir)) {
    const fs::path whole = fs::absolute(dir.empty() ? "." : dir).lexically_normal();
    return whole.has_filename() || whole == whole.root_path() ? whole.string()
                                                              : whole.parent_path().string();
  }
  STARLING_TRY(place, s3::parse_place(dir));
  return place.text();
}

std::unique_ptr<Storage> open_storage(const std::string& dir) {
  if (s3::is_place(dir)) {
    auto place = s3::parse_place(dir);
    STARLING_CHECK(place);
    return s3::open_store(std::move(place).value());
  }
  return std::make_unique<Folder>(dir);
}

void hurry_storage() {
  s3::hurry();
}

Result<> may_write(const std::string& dir) {
  if (!s3::is_place(dir)) return ok();
  auto made = open_storage(dir)->make();
  if (made || made.error().code() == Code::kUnavailable) return ok();
  return made;
}

Result<std::unique_ptr<StoredObject>> open_file(const std::string& path) {
  // Do not block: opening a pipe would wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::unique_ptr<StoredObject>();
  if (fd < 0) return system_error("cannot open", path);
  struct stat status {};
  auto error = ::fstat(fd, &status) != 0 ? system_error("cannot inspect", path)
                                         : Error(Code::kBadInput, "not a regular file; " + path);
  if (!S_ISREG(status.st_mode)) {
    ::close(fd);
    return error;
  }
  return std::make_unique<OpenFile>(path, fd, static_cast<std::uint64_t>(status.st_size));
}

}  // namespace starling
