#pragma once
// A Shard of a checkpoint is the state of some segments as a safetensors file that any reader of
// the format understands.
//
// For each segment and each tensor that it touches, the elements [begin, end) of that tensor, flat:
//   param.<tensor>@<begin>     F32, weights
//   moment1.<tensor>@<begin>   F32, and moment2 where the optimizer has a second one
// and once for the segment
//   exponents@<segment>        I16, by block
// Nothing depends on the workers that wrote it or on their number. Pure but for the file.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/formats/safetensors.h"
#include "core/formats/storage.h"
#include "core/job/layout.h"
#include "core/job/segment_values.h"
#include "core/wire/messages.h"

namespace starling {

// Puts FOLDER/FILE into the store, and says what is in it. Errors: as Storage::put().
Result<Shard> write_shard(Storage& storage, const std::string& folder, const std::string& file,
                          const Layout& layout, std::span<const SegmentValues> segments);

// Reads shards of one checkpoint, each opened once. Borrows the store and the layout.
class ShardReader {
 public:
  ShardReader(const Storage& storage, std::string folder, const Layout& layout, bool second)
      : storage_(storage), folder_(std::move(folder)), layout_(layout), second_(second) {}
  // Adds the state of one of the shard's segments to `out`, verified.
  // Errors: kCorrupt  the file is not there, is not what was written, or has another digest; the
  // text names it.
  Result<> read(const Shard& shard, const SegmentDigest& segment, SegmentStates& out);

 private:
  Result<const SafetensorsFile*> open(const Shard& shard);

  const Storage& storage_;
  const std::string folder_;
  const Layout& layout_;
  const bool second_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::vector<float> weights_, first_, second_values_;
  std::vector<std::int16_t> exponents_;
  Bytes scratch_;
};

}  // namespace starling
