#include "core/formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "core/base/check.h"
#include "core/formats/safetensors_header.h"
#include "core/formats/synced_file.h"

namespace starling {
namespace {

float float_of_bf16(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

// IEEE 754 binary16: five bits of exponent, ten of fraction.
float float_of_f16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half} >> 15 << 31;
  const std::uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  STARLING_TRY(object, open_file(path));
  if (!object) return Error(Code::kBadInput, "cannot open " + path + ": no such file");
  return open(std::move(object));
}

Result<SafetensorsFile> SafetensorsFile::open(std::unique_ptr<const StoredObject> object) {
  SafetensorsFile file(std::move(object));
  if (auto loaded = file.load(); !loaded)
    return std::move(loaded).error().in("reading " + file.path());
  return file;
}

Result<> SafetensorsFile::load() {
  const std::uint64_t size = object_->size();
  std::uint64_t length = 0;
  if (size < sizeof length)
    return Error(Code::kBadInput, "file of " + std::to_string(size) + " bytes; the header needs 8");
  std::uint8_t raw[sizeof length];
  STARLING_TRY(object_->read(0, raw));
  std::memcpy(&length, raw, sizeof length);
  if (length > kHeaderMax || length > size - sizeof length)
    return Error(Code::kBadInput, "header of " + std::to_string(length) + " bytes; at most " +
                                      std::to_string(std::min(kHeaderMax, size - 8)) +
                                      " are possible");
  std::string text(length, '\0');
  STARLING_TRY(
      object_->read(sizeof length, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}));
  data_begin_ = sizeof length + length;
  auto header = parse_safetensors_header(text, size - data_begin_);
  if (!header) return std::move(header).error();
  metadata_ = std::move(header.value().metadata);
  tensors_ = std::move(header.value().tensors);
  index();
  return ok();
}

SafetensorsFile SafetensorsFile::of(std::unique_ptr<const StoredObject> object,
                                    std::vector<SafetensorsEntry> tensors) {
  SafetensorsFile file(std::move(object));
  file.tensors_ = std::move(tensors);
  file.index();
  return file;
}

void SafetensorsFile::index() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

void widen(const std::uint8_t* bytes, Dtype dtype, std::span<float> values) {
  const auto make = [&](const auto& float_of) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, bytes + 2 * i, sizeof half);
      values[i] = float_of(half);
    }
  };
  STARLING_CHECK(dtype == Dtype::kBf16 || dtype == Dtype::kF16);
  if (dtype == Dtype::kBf16)
    make([](std::uint16_t half) { return float_of_bf16(half); });
  else
    make([](std::uint16_t half) { return float_of_f16(half); });
}

Result<> SafetensorsFile::read(const SafetensorsEntry& entry, std::uint64_t from,
                               std::span<std::uint8_t> out) const {
  STARLING_CHECK(from <= entry.bytes);
  STARLING_CHECK(out.size() <= entry.bytes - from);
  return object_->read(data_begin_ + entry.offset + from, out);
}

Error SafetensorsFile::wrong_dtype(const SafetensorsEntry& entry, Dtype expected) const {
  return bad_input("tensor " + entry.name + " is " + std::string(dtype_name(entry.dtype)) +
                   "; expected " + std::string(dtype_name(expected)) + "; in " + path());
}

template <class T>
Result<std::vector<T>> SafetensorsFile::whole(std::string_view name, Dtype dtype) const {
  const SafetensorsEntry* entry = find(name);
  if (!entry) return Error(Code::kBadInput, "no tensor " + std::string(name) + " in " + path());
  if (entry->dtype != dtype) return wrong_dtype(*entry, dtype);
  // The range lies within the file, so this is no larger than what is there to read.
  std::vector<T> values(entry->elements());
  STARLING_TRY(read(*entry, 0, {reinterpret_cast<std::uint8_t*>(values.data()), entry->bytes}));
  return values;
}

Result<> SafetensorsFile::floats(const SafetensorsEntry& entry, std::uint64_t from,
                                 std::span<float> values) const {
  STARLING_CHECK(from <= entry.elements() && values.size() <= entry.elements() - from);
  if (entry.dtype == Dtype::kF32)
    return read(entry, from * 4,
                {reinterpret_cast<std::uint8_t*>(values.data()), values.size_bytes()});
  if (entry.dtype != Dtype::kBf16 && entry.dtype != Dtype::kF16)
    return wrong_dtype(entry, Dtype::kF32);
  constexpr std::size_t kAtOnce = 1u << 16;
  std::vector<std::uint16_t> halves(std::min(kAtOnce, values.size()));
  for (std::size_t at = 0; at < values.size(); at += halves.size()) {
    halves.resize(std::min(kAtOnce, values.size() - at));
    STARLING_TRY(read(entry, (from + at) * 2,
                      {reinterpret_cast<std::uint8_t*>(halves.data()), halves.size() * 2}));
    widen(reinterpret_cast<const std::uint8_t*>(halves.data()), entry.dtype,
          values.subspan(at, halves.size()));
  }
  return ok();
}

Result<std::vector<float>> SafetensorsFile::floats(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (!entry) return Error(Code::kBadInput, "no tensor " + std::string(name) + " in " + path());
  std::vector<float> values(entry->elements());
  STARLING_TRY(floats(*entry, 0, values));
  return values;
}

Result<std::vector<std::int32_t>> SafetensorsFile::ints(std::string_view name) const {
  return whole<std::int32_t>(name, Dtype::kI32);
}

Result<SafetensorsPieces> safetensors_pieces(std::vector<SafetensorsTensor> tensors,
                                             const std::map<std::string, std::string>& metadata) {
  // Largest elements first: then every tensor is aligned to its own.
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return dtype_size(a.dtype) > dtype_size(b.dtype);
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

  SafetensorsPieces pieces;
  pieces.header = std::move(text);
  for (const SafetensorsTensor& t : tensors) pieces.data.push_back(t.data);
  return pieces;
}

std::vector<ByteView> SafetensorsPieces::all() const {
  std::vector<ByteView> pieces{header};
  pieces.insert(pieces.end(), data.begin(), data.end());
  return pieces;
}

std::uint64_t SafetensorsPieces::bytes() const {
  std::uint64_t bytes = 0;
  for (const ByteView piece : all()) bytes += piece.size();
  return bytes;
}

Result<> write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors,
                           const std::map<std::string, std::string>& metadata) {
  STARLING_TRY(pieces, safetensors_pieces(std::move(tensors), metadata));
  return write_synced_file(path, pieces.all());
}

}  // namespace starling
