#include "core/formats/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "core/base/check.h"
#include "core/formats/safetensors_header.h"
#include "core/formats/synced_file.h"

namespace starling {
namespace {

Error failed(const std::string& what, const std::string& path) {
  return Error(Code::kBadInput, what + " " + path + ": " + std::strerror(errno));
}

Result<> read_at(int file, const std::string& path, std::uint64_t offset,
                 std::span<std::uint8_t> out) {
  while (!out.empty()) {
    const ssize_t n = pread(file, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("cannot read", path);
    if (n == 0)
      return Error(Code::kBadInput, "file ended at byte " + std::to_string(offset) +
                                        "; it was longer when opened; " + path);
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return ok();
}

}  // namespace

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      data_begin_(other.data_begin_),
      metadata_(std::move(other.metadata_)),
      tensors_(std::move(other.tensors_)),
      by_name_(std::move(other.by_name_)) {}

SafetensorsFile::~SafetensorsFile() {
  if (file_ >= 0) ::close(file_);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  // Do not block: opening a pipe would wait for a writer.
  file.file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.file_ < 0) return failed("cannot open", path);
  if (auto loaded = file.load(); !loaded) return std::move(loaded).error().in("reading " + path);
  return file;
}

Result<> SafetensorsFile::load() {
  struct stat status {};
  if (fstat(file_, &status) != 0) return failed("cannot inspect", path_);
  if (!S_ISREG(status.st_mode)) return Error(Code::kBadInput, "not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t length = 0;
  if (size < sizeof length)
    return Error(Code::kBadInput, "file of " + std::to_string(size) + " bytes; the header needs 8");
  std::uint8_t raw[sizeof length];
  STARLING_TRY(read_at(file_, path_, 0, raw));
  std::memcpy(&length, raw, sizeof length);
  if (length > kHeaderMax || length > size - sizeof length)
    return Error(Code::kBadInput, "header of " + std::to_string(length) + " bytes; at most " +
                                      std::to_string(std::min(kHeaderMax, size - 8)) +
                                      " are possible");
  std::string text(length, '\0');
  STARLING_TRY(read_at(file_, path_, sizeof length,
                       {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}));
  data_begin_ = sizeof length + length;
  auto header = parse_safetensors_header(text, size - data_begin_);
  if (!header) return std::move(header).error();
  metadata_ = std::move(header.value().metadata);
  tensors_ = std::move(header.value().tensors);
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  return ok();
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

Result<> SafetensorsFile::read(const SafetensorsEntry& entry, std::uint64_t from,
                               std::span<std::uint8_t> out) const {
  STARLING_CHECK(from <= entry.bytes);
  STARLING_CHECK(out.size() <= entry.bytes - from);
  return read_at(file_, path_, data_begin_ + entry.offset + from, out);
}

template <class T>
Result<std::vector<T>> SafetensorsFile::whole(std::string_view name, Dtype dtype) const {
  const SafetensorsEntry* entry = find(name);
  if (!entry) return Error(Code::kBadInput, "no tensor " + std::string(name) + " in " + path_);
  if (entry->dtype != dtype)
    return Error(Code::kBadInput, "tensor " + std::string(name) + " is " +
                                      std::string(dtype_name(entry->dtype)) + "; expected " +
                                      std::string(dtype_name(dtype)) + "; in " + path_);
  // The range lies within the file, so this is no larger than what is there to read.
  std::vector<T> values(entry->elements());
  STARLING_TRY(read(*entry, 0, {reinterpret_cast<std::uint8_t*>(values.data()), entry->bytes}));
  return values;
}

Result<std::vector<float>> SafetensorsFile::floats(std::string_view name) const {
  return whole<float>(name, Dtype::kF32);
}

Result<std::vector<std::int32_t>> SafetensorsFile::ints(std::string_view name) const {
  return whole<std::int32_t>(name, Dtype::kI32);
}

Result<> write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors,
                           const std::map<std::string, std::string>& metadata) {
  // Largest elements first: then every tensor is aligned to its own.
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const auto sa = dtype_size(a.dtype), sb = dtype_size(b.dtype);
    return sa != sb ? sa > sb : a.name < b.name;
  });
  SafetensorsHeader header{metadata, {}};
  std::uint64_t at = 0;
  std::set<std::string_view> names;
  for (const SafetensorsTensor& t : tensors) {
    STARLING_CHECK_MSG(names.insert(t.name).second, t.name);
    std::uint64_t bytes = dtype_size(t.dtype);
    for (const std::uint64_t d : t.shape) bytes *= d;
    STARLING_CHECK_MSG(bytes == t.data.size(), t.name);
    STARLING_CHECK_MSG(!t.name.empty() && t.name != "__metadata__", t.name);
    header.tensors.push_back({t.name, t.dtype, t.shape, at, bytes});
    at += bytes;
  }
  STARLING_TRY(text, format_safetensors_header(header));
  STARLING_CHECK(text.size() <= 8 + SafetensorsFile::kHeaderMax);

  std::vector<ByteView> pieces{text};
  for (const SafetensorsTensor& t : tensors) pieces.push_back(t.data);
  return write_synced_file(path, pieces);
}

}  // namespace starling
