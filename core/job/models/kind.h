#pragma once
// A kind of model is a struct in a file of this folder, and a place in table.h. The struct holds the
// fields of [model] and has
//   kKind                       its row: what others ask about the kind
//   read(section, job, base)    takes the fields from a job file and says what is wrong with them; the
//                               keys that it asks for are the keys of the kind
//   write(out)                  writes the fields as lines of canonical TOML
// and where it applies
//   input()                     what a network takes of [data]; without it the model has no such section
//   from                        the weights that training begins with (from_weights.h)
//   lora                        adapters of these (lora.h)
//   samples                     how many, of data that are only numbered
//   metrics                     names of what passes measure beside the loss
//   drop_idle()                 resets the fields that reach no bit of the result, for all hashes
//   drop_texts()                resets the fields that only state_hash() leaves out
//
// Files of the kind's name in kernels/ compute it: kernels/models/kinds.h has a line for each kind,
// kernels/cuda/net.h for each that GPUs compute.

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace starling {

struct Job;
namespace job_words {
class Section;
}

struct ModelKind {
  const char* word;               // in job files
  const char* with_article = "";  // "a gpt", in messages about [data]; of a kind with input()
  bool may_bring_data = false;    // [data] is the application's matter, and may be missing
  // Whether a gradient may depend on more than step, micro-batch and parameters: a script or an
  // application may keep state from one pass to the next.
  bool may_keep_state = false;
  bool is_script = false;  // a script's processes compute it
  // Layers over the kernels of an instruction set compute it (kernels/cpu/table.h).
  bool computed_by_kernels = false;
};

// ModelInput is what a network takes of a data set: the same on every device.
struct ModelInput {
  std::size_t positions = 1;    // rows per sequence
  std::size_t features = 0;     // of x; 0: tokens
  std::int64_t vocabulary = 0;  // tokens are below it
  std::int64_t classes = 0;     // targets are below it
  bool tokens() const { return features == 0; }
};

inline constexpr std::uint64_t kParametersMax = 1ull << 36;
inline constexpr std::uint64_t kMicroBatchTokensMax = 1ull << 26;  // sequences * context

}  // namespace starling
