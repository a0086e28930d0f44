#pragma once
// The safetensors format: a reader that trusts nothing in the file, and an atomic writer.
//
// File: u64 length N of the header; N bytes of JSON, padded with spaces; the data. The header names
// each tensor's dtype, shape and byte range in the data; the ranges must cover the data without
// hole or overlap. "__metadata__" is a map from string to string.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/formats/storage.h"

namespace starling {

enum class Dtype : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kF16,
  kBf16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64
};
std::size_t dtype_size(Dtype dtype);       // bytes of an element
std::string_view dtype_name(Dtype dtype);  // "F32"

// Makes floats of as many values of BF16 or F16, which lie at `bytes`, of any alignment.
void widen(const std::uint8_t* bytes, Dtype dtype, std::span<float> values);

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::uint64_t> shape;  // row-major; empty: one element
  std::uint64_t offset = 0;          // in the data
  std::uint64_t bytes = 0;
  std::uint64_t elements() const { return bytes / dtype_size(dtype); }
};

// An open file or stored object; its header has been read and checked, its data is read on demand into
// the caller's memory (a mapping would end the process if the file was cut meanwhile).
// Threads: const functions from any thread.
class SafetensorsFile {
 public:
  static constexpr std::uint64_t kHeaderMax = 32u << 20;

  // Errors: kBadInput  not readable, not a regular file, or anything in it that the format forbids;
  //                    the text names the file and what was found.
  static Result<SafetensorsFile> open(const std::string& path);
  static Result<SafetensorsFile> open(std::unique_ptr<const StoredObject> object);
  // Tensors of an object whose own header is of another form and has been checked: offsets are from its begin,
  // in order, and each tensor lies within it.
  static SafetensorsFile of(std::unique_ptr<const StoredObject> object,
                            std::vector<SafetensorsEntry> tensors);
  SafetensorsFile(SafetensorsFile&& other) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;

  const std::string& path() const { return object_->place(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }  // by offset
  const SafetensorsEntry* find(std::string_view name) const;                 // null: none

  // Where a tensor of this file begins in it, in bytes.
  std::uint64_t place(const SafetensorsEntry& entry) const { return data_begin_ + entry.offset; }
  // Bytes [from, from + out.size()) of a tensor of this file, which must lie within it.
  Result<> read(const SafetensorsEntry& entry, std::uint64_t from,
                std::span<std::uint8_t> out) const;
  // Elements [from, from + values.size()) of a tensor of this file, which must lie within it, of dtype F32, or
  // BF16 or F16, whose values are floats. Errors: kBadInput  another dtype.
  Result<> floats(const SafetensorsEntry& entry, std::uint64_t from, std::span<float> values) const;
  // A whole tensor of such a dtype, or of I32.
  // Errors: kBadInput  there is none of that name, or it has another dtype.
  Result<std::vector<float>> floats(std::string_view name) const;
  Result<std::vector<std::int32_t>> ints(std::string_view name) const;

 private:
  explicit SafetensorsFile(std::unique_ptr<const StoredObject> object)
      : object_(std::move(object)) {}
  Result<> load();
  void index();
  Error wrong_dtype(const SafetensorsEntry& entry, Dtype expected) const;
  template <class T>
  Result<std::vector<T>> whole(std::string_view name, Dtype dtype) const;

  std::unique_ptr<const StoredObject> object_;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, std::string> metadata_;
  std::vector<SafetensorsEntry> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// A tensor to write; `data` must stay valid during the call and be as long as dtype and shape say.
struct SafetensorsTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::uint64_t> shape;
  ByteView data;
};

// A file as pieces that follow one another; those after the header are the tensors' own memory, which
// must stay valid.
struct SafetensorsPieces {
  Bytes header;
  std::vector<ByteView> data;

  std::vector<ByteView> all() const;
  std::uint64_t bytes() const;
};
// Tensors lie in the order given, those of larger elements first, so each is aligned to its element size.
// Errors: kBadInput  a name or a metadata value is not UTF-8.
Result<SafetensorsPieces> safetensors_pieces(
    std::vector<SafetensorsTensor> tensors,
    const std::map<std::string, std::string>& metadata = {});

// Writes these pieces to a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder:
// after a crash there is the old file or the whole new one. Errors: kBadInput  the file cannot be
// written, and as safetensors_pieces().
Result<> write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors,
                           const std::map<std::string, std::string>& metadata = {});

}  // namespace starling
