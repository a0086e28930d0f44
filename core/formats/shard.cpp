#include "core/formats/shard.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"

namespace starling {
namespace {

// A run of real elements of one tensor in a segment's arrays.
struct Slice {
  const TensorSpec* tensor = nullptr;
  std::uint64_t begin = 0;  // in the tensor
  std::uint64_t at = 0;     // in the segment's arrays
  std::uint64_t count = 0;
};

std::vector<Slice> slices_of(const Layout& layout, SegmentId segment) {
  std::vector<Slice> slices;
  const std::uint32_t first = layout.first_block(segment), blocks = layout.block_count(segment);
  for (std::uint32_t b = 0; b < blocks;) {
    const TensorPlace& place = layout.tensors()[layout.tensor_of(first + b)];
    const std::uint32_t in_tensor = first + b - place.first_block;
    const std::uint32_t n = std::min(blocks - b, place.blocks - in_tensor);
    Slice slice;
    slice.tensor = &place.spec;
    slice.begin = std::uint64_t{in_tensor} * kBlock;
    slice.at = std::uint64_t{b} * kBlock;
    slice.count = std::min(std::uint64_t{n} * kBlock, place.spec.elements() - slice.begin);
    slices.push_back(slice);
    b += n;
  }
  return slices;
}

std::string name_of(const char* array, const Slice& slice) {
  return std::string(array) + "." + slice.tensor->name + "@" + std::to_string(slice.begin);
}
std::string exponents_name(SegmentId segment) {
  return "exponents@" + std::to_string(segment);
}

struct Array {
  const char* name;
  std::span<const float> values;
};
std::vector<Array> arrays_of(const SegmentValues& values) {
  std::vector<Array> arrays{{"param", values.weights}, {"moment1", values.first}};
  if (!values.second.empty()) arrays.push_back({"moment2", values.second});
  return arrays;
}

Error damaged(const std::string& path, const std::string& what) {
  return Error(Code::kCorrupt, path + " " + what);
}

// Of a shard that cannot be read: a store that is away says nothing of what it holds.
Error unreadable(const Error& why) {
  return Error(why.code() == Code::kUnavailable ? why.code() : Code::kCorrupt, why.text());
}

}  // namespace

Result<Shard> write_shard(Storage& storage, const std::string& folder, const std::string& file,
                          const Layout& layout, std::span<const SegmentValues> segments) {
  Shard shard;
  shard.file = file;
  Bytes scratch;
  std::vector<SafetensorsTensor> tensors;
  for (const SegmentValues& values : segments) {
    shard.segments.push_back({values.id, segment_digest(layout, values, scratch)});
    for (const Slice& slice : slices_of(layout, values.id))
      for (const Array& array : arrays_of(values))
        tensors.push_back({name_of(array.name, slice),
                           Dtype::kF32,
                           {slice.count},
                           as_bytes(array.values.subspan(slice.at, slice.count))});
    tensors.push_back({exponents_name(values.id),
                       Dtype::kI16,
                       {values.exponents.size()},
                       as_bytes(values.exponents)});
  }
  STARLING_TRY(pieces, safetensors_pieces(std::move(tensors), {{"format", "starling-shard"}}));
  STARLING_TRY(storage.put(folder + "/" + file, pieces.all()));
  shard.bytes = pieces.bytes();
  return shard;
}

// ---- Reading ----------------------------------------------------------------------------------

Result<const SafetensorsFile*> ShardReader::open(const Shard& shard) {
  auto& file = files_[shard.file];
  if (file) return file.get();
  const std::string name = folder_ + "/" + shard.file;
  auto object = storage_.open(name);
  if (!object) return unreadable(object.error());
  if (!object.value()) return damaged(storage_.place(name), "is not there");
  if (object.value()->size() != shard.bytes)
    return damaged(storage_.place(name), "has " + std::to_string(object.value()->size()) +
                                             " bytes, expected " + std::to_string(shard.bytes));
  auto opened = SafetensorsFile::open(std::move(object).value());
  if (!opened) return unreadable(opened.error());
  file = std::make_unique<SafetensorsFile>(std::move(opened).value());
  return file.get();
}

Result<> ShardReader::read(const Shard& shard, const SegmentDigest& segment, SegmentStates& out) {
  STARLING_TRY(file, open(shard));
  const SegmentId id = segment.segment;
  if (id >= layout_.segments()) return damaged(file->path(), "has a segment that the job has not");
  const auto read_into = [&](const std::string& name, Dtype dtype, std::uint64_t count,
                             std::uint8_t* to) -> Result<> {
    const SafetensorsEntry* entry = file->find(name);
    if (entry == nullptr || entry->dtype != dtype || entry->elements() != count)
      return damaged(file->path(), "has no " + name + " of " + std::to_string(count) + " elements");
    auto done = file->read(*entry, 0, {to, static_cast<std::size_t>(entry->bytes)});
    if (!done) return unreadable(done.error());
    return ok();
  };
  const std::size_t blocks = layout_.block_count(id);
  std::vector<std::pair<const char*, std::vector<float>*>> arrays{{"param", &weights_},
                                                                  {"moment1", &first_}};
  if (second_) arrays.emplace_back("moment2", &second_values_);
  for (const auto& [array, values] : arrays) {
    values->assign(blocks * kBlock, 0.0f);  // the padding
    for (const Slice& slice : slices_of(layout_, id)) {
      STARLING_TRY(read_into(name_of(array, slice), Dtype::kF32, slice.count,
                             reinterpret_cast<std::uint8_t*>(values->data() + slice.at)));
    }
  }
  exponents_.resize(blocks);
  STARLING_TRY(read_into(exponents_name(id), Dtype::kI16, blocks,
                         reinterpret_cast<std::uint8_t*>(exponents_.data())));
  SegmentValues values{id, weights_, first_, second_values_, exponents_};
  if (!second_) values.second = {};
  const Digest digest = segment_digest(layout_, values, scratch_);
  if (digest != segment.digest)
    return damaged(file->path(), "is damaged: segment " + std::to_string(id) + " has digest " +
                                     to_string(digest) + ", expected " + to_string(segment.digest));
  out.add(values);
  return ok();
}

}  // namespace starling
