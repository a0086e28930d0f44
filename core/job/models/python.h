#pragma once
// A model of the user's script, in PyTorch; the script brings its data too.

#include <vector>

#include "core/job/models/kind.h"

namespace starling {

struct PythonSpec {
  static constexpr ModelKind kKind{.word = "python", .may_keep_state = true, .is_script = true};

  std::string script;                // of this machine; a relative path is relative to the job file
  std::uint64_t samples = 0;         // of a pass over the data
  bool own_order = false;            // which samples a place has is the script's to say
  std::vector<std::string> tensors;  // parameters in their order: "encoder.weight:64x128", "scale:"
  std::vector<std::string> metrics;  // names of what the loss gives beside it
  std::uint64_t patience_s = 300;    // for a pass before anything is known of how long one takes
  // The arguments that make the script compute what it computes (tools/python/starling/script.py).
  std::string module;                  // its name if it is run as `python -m NAME`; empty: a file
  std::vector<std::string> arguments;  // sys.argv[1:] in every process
  std::vector<std::string>
      text;                // files in its folder and their hashes: "train.py:0123456789abcdef"
  std::uint32_t call = 1;  // which of its calls of starling.train() or starling.Job is meant,
  std::string at;          // and where that is: "train.py:31"
  std::vector<std::string> earlier;  // what the calls before it came to, JSON
  std::string
      started;  // what only the process knows that a person has started, JSON; no part of hashes

  void read(job_words::Section& section, const Job& job, const std::string& base);
  void write(std::ostream& out) const;
  void drop_idle();
  void drop_texts();
  bool operator==(const PythonSpec&) const = default;
};

}  // namespace starling
