#pragma once
// A LaunchPlan says how a job is to run on an engine that starts processes (Slurm, systemd,
// Kubernetes, Ray, SkyPilot, dstack), and one function for each engine gives the files with which it does. Pure: nothing
// is read or written here. Every text of the plan comes from a user; what a file cannot hold
// safely is refused, and the rest is quoted as that file wants it.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/address.h"
#include "core/base/result.h"
#include "core/job/job.h"

namespace starling::tools {

// What the workers are on Kubernetes.
enum class WorkersAs : std::uint8_t { kJob, kJobSet, kTrainJob };

struct LaunchPlan {
  std::string program = "starling";  // found by PATH where the job runs
  std::string name;                  // of the job on the engine
  std::string job_file;              // absolute; empty: a script has described the job
  std::string python;  // of a script's processes; empty: the job has no script, or as there
  Job job;
  std::vector<Address> coordinators;  // where each one listens, in the order of the keys
  std::uint32_t workers = 1;          // asked of the engine
  std::uint32_t min_workers = 1;      // with which training begins
  std::uint32_t threads = 0;          // of each worker; 0: as the engine allots
  std::uint32_t notice_s = 30;        // for a worker to leave
  std::string data;                   // where the data lie for the workers; empty: as the job says
  std::uint32_t tokens = 16;          // workers for which there are keys
  std::string partition, coordinator_partition;  // Slurm's; empty: its default
  // Kubernetes': of the pods, and the PersistentVolumeClaim that they mount at `folder`.
  std::string image, claim, folder;
  std::string name_space;  // empty: the one that kubectl uses by itself
  WorkersAs workers_as = WorkersAs::kJob;
  std::string queue;      // of Kueue; empty: none
  bool identity = false;  // workers show tokens of the cluster (docs/identity.md), and have no key
  std::string gpu;        // of a worker, as SkyPilot or dstack names it; empty: none
};

struct LaunchFile {
  std::string path;  // below the folder
  std::string text;
};

struct Launch {
  std::vector<LaunchFile> files;
  // Commands that begin the job, typed in the folder; empty: they are typed on several machines.
  std::vector<std::string> start;
};

// The files for an engine. The keys (kLaunchKeys) are not among them.
// Errors: kBadInput  which text of the plan the engine cannot have, and what it could.
Result<Launch> slurm_files(const LaunchPlan& plan);
Result<Launch> systemd_files(const LaunchPlan& plan);
Result<Launch> kubernetes_files(const LaunchPlan& plan);
Result<Launch> ray_files(const LaunchPlan& plan);
Result<Launch> skypilot_files(const LaunchPlan& plan);
Result<Launch> dstack_files(const LaunchPlan& plan);

// Where so many coordinators listen on Kubernetes: at names of their pods.
std::vector<Address> kubernetes_coordinators(const std::string& name, std::uint32_t count);

// Folder of the keys and join tokens, below that of the files.
inline constexpr const char* kLaunchKeys = "keys";
// For how many workers there are keys: more may be asked of the engine while the job runs.
std::uint32_t keys_for(std::uint32_t workers);

// The addresses of the coordinators, separated by commas.
std::string addresses(const LaunchPlan& plan);

// "The checkpoints are in s3://a/b", and the data: what of the job lies in object storage, for which each process needs a
// key; empty: nothing.
std::string store_text(const LaunchPlan& plan);

// Lines of a shell that set $new to what begins a coordinator: nothing where its state is; --new where none is, and
// --resume beside it where the job has checkpoints, which goes on from the newest, if there is one. `between` ends a line.
std::string begin_lines(const std::string& state, const Job& job, const std::string& between);

// Beyond a worker's notice: what it needs to see its end, before the engine kills it.
inline constexpr std::uint32_t kBeyondNoticeS = 15;

// How many seconds a worker waits for a coordinator that does not answer yet.
std::uint64_t wait_s(const Job& job);

// Whether the job waits as long as an engine may need to start its processes, or to start one
// again. Errors: kBadInput  the key that says less than kEngineWaitMs, and what was expected.
inline constexpr std::uint64_t kEngineWaitMs = 600'000;
Result<> check_patience(const Job& job);

}  // namespace starling::tools
