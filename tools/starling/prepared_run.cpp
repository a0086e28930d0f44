#include "tools/starling/prepared_run.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "actors/files.h"
#include "actors/make_model.h"
#include "actors/worker/memory_need.h"
#include "core/base/process_identity.h"
#include "core/data/dataset.h"
#include "core/formats/checkpoint_owner.h"
#include "kernels/device/device.h"
#include "tools/starling/earlier_run.h"
#include "tools/starling/model_file.h"
#include "tools/starling/names.h"
#include "tools/starling/run_job.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kSpareKeys = 64;  // for workers that join later

// Makes the folder of checkpoints the run's until its end, once.
Result<> claim_folder(PreparedRun& run) {
  if (run.claim) return ok();
  STARLING_TRY(take_folder(run.job, run.id(), process_identity()));
  run.claim = CheckpointClaim(run.job.checkpoint.dir, run.id());
  return ok();
}

}  // namespace

Result<PreparedRun> prepare_run(const RunOptions& options) {
  PreparedRun run;
  if (options.start && *options.start > options.workers)
    return Error(Code::kBadInput, "--start " + std::to_string(*options.start) +
                                      " is more than all workers, --workers " +
                                      std::to_string(options.workers));
  const std::size_t files = actors::files_of_worker(options.workers);
  if (auto why = actors::too_many_files(options.workers, "worker", files); !why.empty())
    return Error(Code::kBadInput, std::move(why));
  STARLING_TRY(job, job_to_run(options));
  run.job = std::move(job);
  const std::string folder = options.out.empty() ? default_folder(run.job) : options.out;
  std::error_code error;
  run.folder = fs::absolute(folder, error).lexically_normal().string();
  if (fs::equivalent(options.job, run.path("job.toml"), error) && !error)
    return Error(
        Code::kBadInput,
        "the output folder has the job file itself, which the run would write over, expected "
        "another folder; --out " +
            folder);
  if (options.resume && (run.finished = finished_run(run.folder, run.job))) return run;
  STARLING_TRY(model, actors::make_model(run.job));
  STARLING_TRY(kernels::check_device(run.job.isa));
  run.layout = std::make_shared<const Layout>(model->tensors());
  STARLING_TRY(check_tensors(run.job, *run.layout, options.job));
  run.isa = model->isa();
  const std::uint32_t here = std::min(options.start.value_or(options.workers), options.workers);
  STARLING_TRY(actors::enough_memory(run.job, *run.layout, options.workers, here, options.threads));
  STARLING_TRY(data, Dataset::open(run.job));
  run.data = data->identity();
  run.samples = data->samples();
  if (const auto lanes = data->lanes()) run.chunk_samples = lanes->chunk_samples;
  for (auto remark : {data->remark(), local_remark(run.job)})
    if (!remark.empty()) run.remarks.push_back(std::move(remark));

  STARLING_TRY(opened, open_checkpoints(run.job, *run.layout, options.resume));
  run.checkpoints = std::move(opened.to_go_on_from);
  if (std::string note = rate_note(run.job, run.checkpoints); !note.empty())
    run.notes.push_back(std::move(note));
  if (!opened.remark.empty()) run.remarks.push_back(std::move(opened.remark));

  run.ring = KeyRing::generate(options.coordinators, options.workers + kSpareKeys);
  std::string aside;
  if (options.resume) {
    STARLING_TRY(moved, put_aside_earlier_run(run.folder, run.job));
    aside = std::move(moved);
    if (const auto first = aside.empty() ? std::nullopt : doubt_told_in(aside)) {
      for (Checkpoint& c : run.checkpoints)
        if (c.version > *first) c.doubted_from = std::min(c.doubted_from, *first);
      // The run may be over before its leader has the doubt, and the next one looks no further back.
      STARLING_TRY(claim_folder(run));
      (void)doubt_own_checkpoints(*open_storage(run.job.checkpoint.dir),
                                  writer_of(run.job, run.id()), *first);
    }
  }
  if (aside.empty()) {
    STARLING_TRY(moved, put_aside_run_without_steps(run.folder));
    aside = std::move(moved);
  }
  if (const char* const model_file = model_file_of(run.job);
      fs::exists(run.path(model_file), error))
    return Error(Code::kBadInput, run.folder + " already has a model, expected a new folder; " +
                                      std::string(model_file));
  STARLING_TRY(events, EventWriter::open(run.folder));
  run.events = std::move(events);
  // Left by a run that is over, as only one run writes into this folder.
  fs::remove_all(run.keys(), error);
  if (!aside.empty()) run.notes.push_back("the files of the run before are in " + aside);
  if (const std::string keys = remove_keys_of_dead_runs(run.folder); !keys.empty())
    run.notes.push_back("removed the keys of a run that was killed: " + keys);
  // Not before: a command that is refused takes nothing from a run that goes on.
  STARLING_TRY(claim_folder(run));
  STARLING_TRY(run.ring.split(run.keys(), /*synced=*/false));
  STARLING_TRY(write_job(run.job, run.path("job.toml")));
  return run;
}

}  // namespace starling::tools
