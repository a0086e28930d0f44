#pragma once
// Job says what is trained, on what data, how, and for how long. It is read from a TOML file; a
// pure value that every process of a run has alike.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/loss_scale.h"
#include "core/base/precision.h"
#include "core/base/result.h"
#include "core/job/identity.h"
#include "core/job/models/table.h"
#include "core/job/sections.h"

namespace starling {

// What is different for some of the tensors. Where several groups name a tensor, each key is that of the
// last one that has it.
struct GroupSpec {
  std::vector<std::string> tensors;    // names, or patterns of them: "*.bias" (core/job/groups.h)
  std::optional<double> rate_factor;   // times the step's learning rate
  std::optional<double> weight_decay;  // of all its tensors, whatever their dimensions
  bool statistics = false;             // no parameters: UpdateGroup::statistics
  bool operator==(const GroupSpec&) const = default;
};

enum class OptimizerKind : std::uint8_t { kAdamW = 1, kAdam, kSgd, kOwn, kElementwise };

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kAdamW;
  std::string name;         // of an application's (kernels/optim/own.h)
  std::string update;       // "elementwise": its formula (core/job/formula.h)
  std::string schedule;     // its name (core/job/schedule.h); empty: warm-up and cosine
  double peak_rate = 1e-3;  // learning rate after the warm-up
  double floor = 0.1;       // fraction of the peak at the end of the schedule
  std::uint64_t warmup_steps = 0;
  std::uint64_t schedule_steps = 0;  // length of the schedule, with warm-up; 0 = the job's steps
  // Of one schedule each.
  std::uint64_t step_every = 0;   // "step": steps after which the rate falls, each time
  double step_factor = 0.1;       // "step": what it is multiplied with then
  std::uint64_t decay_steps = 0;  // "warm-up-stable-decay": the last ones
  double start = 0.04;            // "one-cycle": fraction of the peak in the first step
  std::vector<double> fractions;  // "sampled": of the peak, one for each step
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0.1;  // on tensors of two or more dimensions
  double momentum = 0.9;      // SGD
  bool nesterov = true;       // SGD
  double clip = 1.0;          // global gradient norm; 0 = none
  std::vector<GroupSpec> groups;
  bool operator==(const OptimizerSpec&) const = default;
};

// LocalSpec says that a micro-batch is several passes, each followed by a step of an optimizer of its own, and that its
// gradient is the weights before these less the weights after them (Douillard et al., 2023, "DiLoCo").
struct LocalSpec {
  // Passes of a micro-batch, which share its sequences alike. 0: its gradient is that of one pass.
  std::uint32_t steps = 0;
  // Its moments are zeros when a micro-batch begins; its schedule counts local steps.
  OptimizerSpec optimizer;
  bool on() const { return steps != 0; }
  bool operator==(const LocalSpec&) const = default;
};

enum class DataKind : std::uint8_t {
  kText = 1,    // bytes of a file or of the files of a folder, in the order of their names
  kTokens,      // token files (core/data/token_file.h)
  kClassified,  // samples for a classifier: a safetensors file with x [n, in] f32 and y [n] i32
};

// DataOrder says which samples a micro-batch holds.
enum class DataOrder : std::uint8_t {
  kGlobal = 1,  // the next ones of one order of all (core/data/dataset.h)
  kLanes,       // of shards of tokens, each the next ones of its own lane (core/data/lanes.h)
};

struct DataSpec {
  DataKind kind = DataKind::kText;
  // A file, a folder, or a pattern (core/base/data_files.h; classified: a file); of lanes a folder or s3://BUCKET/PREFIX.
  // A relative path is relative to the job file.
  std::string path;
  // Endings of files that count in a folder (".h"); "" = none. Empty = all, of tokens ".bin".
  std::vector<std::string> extensions;
  DataOrder order = DataOrder::kGlobal;
  // Of lanes: a folder of this machine that chunks of a far store are kept in, and its bound. Empty: none are.
  std::string cache;
  std::uint64_t cache_bytes = kCacheBytes;
  static constexpr std::uint64_t kCacheBytes = std::uint64_t{16} << 30;
  bool operator==(const DataSpec&) const = default;
};

// Offload says what of a GPU worker's state the host's memory has and updates. Changes no bits.
enum class Offload : std::uint8_t {
  kNone = 1,
  kMoments,  // the optimizer's
};

// NonFinite says what follows a step with a micro-batch that is not finite (NaN or infinity), whose
// update is skipped.
enum class NonFinite : std::uint8_t {
  kSkip = 1,  // the next one, and a warning
  kStop,      // the end of the job, exit code 1
};
struct Job {
  std::string name;
  std::uint64_t seed = 1;
  std::uint64_t steps = 0;
  std::uint32_t micro_batches = 8;          // M
  std::uint32_t micro_batch_sequences = 4;  // sequences (or samples) of a micro-batch
  ModelSpec model = GptSpec{};
  OptimizerSpec optimizer;
  LocalSpec local;
  NumbersSpec numbers;
  DataSpec data;               // of a model with an input_of(), or that may bring data
  std::uint32_t replicas = 2;  // r, wanted copies besides the owner's
  NonFinite on_nonfinite = NonFinite::kSkip;
  // Of working parameters, which are the weights rounded to it: bf16 and fp16 halve the bytes of a gather.
  // Master weights and moments are fp32. A device that computes with fp16 scales its loss.
  Precision precision = Precision::kFp32;
  std::uint8_t loss_scale = LossScaleRule{}.first;         // of fp16: log2 of the first scale
  std::uint32_t loss_scale_steps = LossScaleRule{}.every;  // until it is doubled
  Offload offload = Offload::kNone;
  bool recompute = false;    // passes keep the inputs of layers alone, and compute the rest twice
  std::string isa = "auto";  // auto, reference, avx2, avx512, cuda, emulated: docs/design.md, 5
  ElasticSpec elastic;
  CheckpointSpec checkpoint;
  EvaluateSpec evaluate;
  IdentitySpec identity;
  bool operator==(const Job&) const = default;
};

// Reads, checks and resolves a job file. Errors (kBadInput) name key, value and what was expected;
// unknown keys are errors with the nearest known one. `base` is the folder for relative paths.
Result<Job> parse_job(const std::string& toml, const std::string& base);
// From a file. Of adapters LoraSpec::base may be empty then: core/formats/job_file.h has load_job(), which leaves nothing
// open.
Result<Job> read_job(const std::string& path);

// Whether a job that a program has made keeps the rules of job files, with the same words.
// Errors: kBadInput.
Result<> validate(const Job& job);
// Validates all but the name, [model] and [data], where an application brings its own.
Result<> validate_training(Job job);

// Writes the job as canonical TOML with absolute paths: parse_job(format_job(j)) == j. This is what
// coordinators hand to workers.
std::string format_job(const Job& job);
// A hash of what coordinators, workers and the group's log of one job have alike: all that reaches
// a bit of the result, its length, the lease and the versions of checkpoints. Names, paths and
// timeouts may differ (job.cpp says what, and tests).
std::uint64_t job_hash(const Job& job);
// A hash of what reaches a bit of the state alone, without the number of steps: jobs with equal
// hashes and data have the same state at every version that both reach, so one can go on from a
// checkpoint of the other. It leaves out a script's text and arguments, which also say where to
// write and whether to go on: script_differences() says where they differ.
std::uint64_t state_hash(const Job& job);
// Where two jobs differ in their scripts' texts and arguments: "train.py has another text"; empty:
// nowhere.
std::string script_differences(const Job& was, const Job& now);
// Whether a checkpoint of a job with that hash is one to go on from.
inline bool may_go_on_from(const Job& job, std::uint64_t hash) {
  return hash == state_hash(job) || (job.checkpoint.accepts != 0 && hash == job.checkpoint.accepts);
}
// Where two jobs differ in what state_hash() covers: "[optimizer].peak_rate is 0.001 and 0.002";
// empty: nowhere.
std::vector<std::string> state_differences(const Job& a, const Job& b);

// Which keys make the two different trainings, for people: "job.seed is 1 here and 2 there"; empty
// if their hashes are equal.
std::string job_differences(const Job& here, const Job& there);

// The rule of the loss scale where gradients are computed in fp16; off with another precision. Local steps
// halve a scale that is too large by themselves, and skip no step for it: so nothing doubles the scale there.
inline LossScaleRule loss_scale_rule(const Job& job) {
  const std::uint32_t every = job.local.on() ? ~std::uint32_t{0} : job.loss_scale_steps;
  return {job.precision == Precision::kFp16, job.loss_scale, every};
}
// Steps of the schedule.
inline std::uint64_t schedule_of(const Job& job) {
  return job.optimizer.schedule_steps ? job.optimizer.schedule_steps : job.steps;
}
// Returns the sequences (or samples) of one pass.
inline std::uint32_t pass_sequences(const Job& job) {
  return job.local.on() ? job.micro_batch_sequences / job.local.steps : job.micro_batch_sequences;
}
// Returns the local steps of the whole job: the length of their schedule, unless the job says another one.
inline std::uint64_t local_steps(const Job& job) {
  return job.steps * job.local.steps;
}
// Learning rate of step k (0-based), in double, of a schedule that has passed check_schedule(). `peak_rate`: in place of
// the optimizer's; 0: that one.
double learning_rate(const OptimizerSpec& optimizer, std::uint64_t step, std::uint64_t steps,
                     double peak_rate = 0);

}  // namespace starling
