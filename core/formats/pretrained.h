#pragma once
// The weights of a model that was published, as transformers writes them: safetensors or files of torch.save(), one
// or shards.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/formats/safetensors.h"

namespace starling {

// Behind the name that a model of one file would have: the index of its shards.
inline constexpr const char* kIndexSuffix = ".index.json";

// Whether weights may have it: a float, or one of the widths that floats have room for.
inline bool is_float(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kBf16 || dtype == Dtype::kF16;
}

// Const functions: any thread. The files stay open, and what is read is of the bytes that they had when they
// were opened, as far as sizes and times of the files tell.
class PretrainedWeights {
 public:
  // `path`: such a file, or a folder with model.safetensors or pytorch_model.bin, or with the .index.json of one and
  // the shards that it names; safetensors are preferred. Errors: kBadInput  nothing of that kind is there, a file is
  // none, or the index and its shards do not have the same tensors.
  static Result<PretrainedWeights> open(const std::string& path);

  struct Tensor {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  // By name, as the files have them.
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const std::string& path() const { return path_; }
  // Elements [from, from + values.size()) of a tensor of F32, BF16 or F16.
  // Errors: kBadInput  another dtype, or a file that was changed since it was opened.
  Result<> read(const Tensor& tensor, std::uint64_t from, std::span<float> values) const;
  // A hash of names, shapes and values, as floats: the same however the tensors are cut into files and whatever their
  // width. `prefix` counts for no name that begins with it, nor does a tensor that is_spare() by the name behind it. Reads
  // all others. Errors: as read().
  Result<Digest> digest(std::string_view prefix,
                        const std::function<bool(std::string_view name)>& is_spare) const;
  // Errors: kBadInput  a file was changed since it was opened.
  Result<> unchanged() const;

 private:
  struct Stamp {
    std::uint64_t inode = 0;
    std::int64_t size = 0, modified_s = 0, modified_ns = 0, changed_s = 0, changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Result<Stamp> stamp_of(const std::string& path);
  Result<> add(const std::string& path);
  Result<> unchanged(const SafetensorsFile& file) const;

  std::string path_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::map<const SafetensorsFile*, Stamp> stamps_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace starling
