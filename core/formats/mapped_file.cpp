#include "core/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/fd.h"

namespace starling {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0)
    return bad_input(std::string(std::strerror(errno)) + "; reading " + path);
  if (!S_ISREG(status.st_mode)) return bad_input("not a regular file; reading " + path);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return MappedFile(ByteView());
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED)
    return bad_input("cannot be mapped: " + std::string(std::strerror(errno)) + "; reading " +
                     path);
  return MappedFile(ByteView(static_cast<const std::uint8_t*>(at), size));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, ByteView())) {}

}  // namespace starling
