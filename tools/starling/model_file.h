#pragma once
// The trained model is a safetensors file; for GPT-2 it has the names
// and the config.json that transformers' GPT2LMHeadModel loads.

#include <cstdint>
#include <span>
#include <string>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::tools {

struct Trained {
  std::span<const float> parameters;  // flat in the layout
  Digest digest{};                    // of them; goes into the file
  Digest
      end{};  // of the state at that version, as the end of a job says it; none of a merged model
};

// The name of the file that a job's model is: kModelFile, or kAdapterFile where adapters are trained.
const char* model_file_of(const Job& job);
// The same of a path that ends with kModelFile, and of s3://BUCKET/PREFIX, which gets the name; another one is as it is.
std::string model_path(const std::string& path, const Job& job);

// Copies a tokenizer's files, and its settings if they are there, from one folder to another. Errors: kBadInput  one
// cannot be copied.
Result<> copy_tokenizer_files(const std::string& from, const std::string& to);

// Writes `path` at once or not at all, and config.json beside it for a language model, or adapter_config.json. Every
// worker of a job has the same bytes, and the first one writes: a file with this
// digest is left as it is. Any other file is another model, which is moved to PATH.old
// first; the remark says so. In a bucket, s3://BUCKET/PREFIX/NAME, another model stays, and this one goes into a
// folder beside it. Errors: kBadInput  the file cannot be written; kUnavailable  the store is away.
struct SavedModel {
  std::string place;   // its file
  std::string remark;  // a line for people; empty: none
};
Result<SavedModel> save_model(const std::string& path, const Job& job, const Layout& layout,
                              const Trained& model);

// Writes the model into a folder that has none as transformers writes large ones: shards of at most `shard_bytes` of
// tensors, but at least one tensor, their index last, and what save_model() has beside its file. A model that fits
// is one file. Returns the file to read it by, the one file or the index. Errors: kBadInput  as save_model().
Result<std::string> save_shards(const std::string& folder, const Job& job, const Layout& layout,
                                const Trained& model, std::uint64_t shard_bytes);

// Returns whether a worker has saved the model of the job with this end there.
bool is_model_of(const std::string& path, const Digest& end);

// An OlderModel is the file at `path` before a worker takes part in a job. If the worker
// ends without the job's model, a file that is still there is an older one of the same name.
class OlderModel {
 public:
  explicit OlderModel(std::string path);
  // Moves it aside, if the path was not written since and the file is not the model of this end, which
  // another worker may have saved before this one came back. Returns a line
  // about it; empty: there was no file, or it stays.
  std::string move_aside(const Digest& end) const;

 private:
  std::string now() const;  // its inode and time; empty: there is none

  std::string path_, seen_;
};

}  // namespace starling::tools
