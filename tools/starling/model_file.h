#pragma once
// The trained model as a file: safetensors, GPT-2 with the names and the config.json that
// transformers' GPT2LMHeadModel loads.

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
};

// Writes `path` at once or not at all, and config.json beside it for a GPT. Every worker of a job
// has the same bytes, and whoever comes first writes: a file with this digest is left as it is. Any
// other file is another model, which is moved to PATH.old first; the line returned says so. Errors:
// kBadInput  the file cannot be written.
Result<std::string> save_model(const std::string& path, const Job& job, const Layout& layout,
                               const Trained& model);

// The file that is at `path` before a worker takes part in a job. If the worker ends without the
// job's model, what is there still is an older one of the same name.
class OlderModel {
 public:
  explicit OlderModel(std::string path);
  // Moves it aside, if nobody has written the path since. Says so in one line; empty: nothing was
  // there, or it has been written.
  std::string move_aside() const;

 private:
  std::string now() const;  // its inode and time; empty: there is none

  std::string path_, seen_;
};

}  // namespace starling::tools
