#include "core/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace starling {

Result<MappedFile> MappedFile::open(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0)
    return bad_input(std::string(std::strerror(errno)) + "; reading " + path);
  if (!S_ISREG(status.st_mode)) return bad_input("not a regular file; reading " + path);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return MappedFile(std::move(file), ByteView());
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED)
    return bad_input("cannot be mapped: " + std::string(std::strerror(errno)) + "; reading " +
                     path);
  return MappedFile(std::move(file), ByteView(static_cast<const std::uint8_t*>(at), size));
}

Result<MappedFile::Stamp> MappedFile::stamp() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) return bad_input(std::strerror(errno));
  return Stamp{status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
               status.st_ctim.tv_nsec};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, ByteView())) {}

}  // namespace starling
