#include <doctest/doctest.h>

#include "tests/launch/a_plan.h"

namespace starling::tools {
namespace {

std::string slurm_refusal(const LaunchPlan& plan) {
  const auto launch = slurm_files(plan);
  return launch ? "" : launch.error().text();
}

// Goal: what docs/slurm.md promises of the scripts is in them.
TEST_CASE("slurm: the coordinator stays at its node, and each task of the array is a worker") {
  LaunchPlan plan = a_plan();
  plan.partition = "spot";
  plan.coordinator_partition = "main";
  const Launch launch = slurm_files(plan).value();
  const std::string coordinator = text_of(launch, "coordinator.sbatch");
  for (const char* part : {"--nodelist=n4\n", "--partition=main\n", "--requeue\n", "exec srun ",
                           "--workers 2 ", "\nnew=\n[ -e coordinator-state ] || new=--new\n",
                           "--listen 0.0.0.0:7000 --peers n4:7000 "})
    CHECK_MESSAGE(has(coordinator, part), part);
  const std::string workers = text_of(launch, "workers.sbatch");
  for (const char* part :
       {"--array=0-2\n", "--partition=spot\n", "--requeue\n", "\nsrun ", "--notice 30 --wait 900\n",
        "scontrol requeue ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\n"})
    CHECK_MESSAGE(has(workers, part), part);
  CHECK(launch.start ==
        std::vector<std::string>{"sbatch coordinator.sbatch", "sbatch workers.sbatch"});
}

TEST_CASE("slurm: what is not said is Slurm's to choose") {
  const Launch launch = slurm_files(a_plan()).value();
  CHECK(!has(text_of(launch, "workers.sbatch"), "--partition"));
  CHECK(!has(text_of(launch, "workers.sbatch"), "--data"));
  CHECK(!has(text_of(launch, "workers.sbatch"), "--gres"));
  CHECK(has(text_of(launch, "workers.sbatch"),
            "--threads $((SLURM_CPUS_ON_NODE < 256 ? SLURM_CPUS_ON_NODE : 256)) "));
}

TEST_CASE("slurm: a job that computes on a GPU asks for one") {
  LaunchPlan plan = a_plan();
  plan.job.isa = "cuda";
  CHECK(has(text_of(slurm_files(plan).value(), "workers.sbatch"), "#SBATCH --gres=gpu:1\n"));
}

TEST_CASE("slurm: three coordinators are three scripts, with state and events of their own") {
  LaunchPlan plan = a_plan();
  plan.coordinators = {{"n4", 7000}, {"n5", 7000}, {"n6", 7001}};
  const Launch launch = slurm_files(plan).value();
  const std::string last = text_of(launch, "coordinator-2.sbatch");
  for (const char* part :
       {"--nodelist=n6\n", "keys/coordinator-2", "--listen 0.0.0.0:7001",
        "--peers n4:7000,n5:7000,n6:7001", "--state coordinator-2-state", "--out out-2"})
    CHECK_MESSAGE(has(last, part), part);
  CHECK(launch.start.size() == 4);
}

TEST_CASE("slurm: threads that are said are asked of Slurm") {
  LaunchPlan plan = a_plan();
  plan.threads = 8;
  const std::string workers = text_of(slurm_files(plan).value(), "workers.sbatch");
  CHECK(has(workers, "#SBATCH --cpus-per-task=8\n"));
  CHECK(has(workers, "--threads 8 "));
}

// Goal: a group that has lost what it had decided does not train over the checkpoints that are there.
TEST_CASE("slurm: without its state a job goes on from its newest checkpoint, if it has some") {
  LaunchPlan plan = a_plan();
  CHECK(!has(text_of(slurm_files(plan).value(), "coordinator.sbatch"), "--resume"));
  plan.job.checkpoint.every = 10;
  plan.job.checkpoint.dir = "/a b/c";
  CHECK(has(text_of(slurm_files(plan).value(), "coordinator.sbatch"),
            "[ -e coordinator-state ] || new='--new --resume'\n"));
}

// Goal: the files of a launched job say where its processes find the key of its store.
TEST_CASE(
    "launch: files of a job whose checkpoints or data are in object storage have a place for its "
    "key") {
  LaunchPlan plan = a_plan();
  plan.job.checkpoint.every = 10;
  plan.job.checkpoint.dir = "/a";
  CHECK(!has(text_of(slurm_files(plan).value(), "README.md"), "credentials"));
  plan.job.checkpoint.dir = "s3://bucket/x";
  CHECK(has(text_of(slurm_files(plan).value(), "README.md"),
            "s3://bucket/x. Every node needs a key"));
  plan.job.data.path = "s3://bucket/tokens";
  CHECK(has(text_of(slurm_files(plan).value(), "README.md"),
            "- The checkpoints are in s3://bucket/x, the data in s3://bucket/tokens. Every"));
  plan.job.checkpoint = {};
  plan.program = "/bin/starling";
  const auto units = systemd_files(plan).value();
  for (const char* unit : {"starling-coordinator.service", "starling-worker@.service"})
    CHECK(has(text_of(units, unit), "\nEnvironmentFile=-/etc/starling/store.env\n"));
}

// Goal: no text of a user becomes a line or a word of its own in a script.
TEST_CASE("slurm: paths are quoted, and what a line of #SBATCH cannot have is refused") {
  LaunchPlan plan = a_plan();
  plan.job_file = "/my jobs/it's.toml";
  plan.data = "/my data/$(x)";
  const Launch launch = slurm_files(plan).value();
  CHECK(has(text_of(launch, "coordinator.sbatch"), "--job '/my jobs/it'\\''s.toml' "));
  CHECK(has(text_of(launch, "workers.sbatch"), "--data '/my data/$(x)' "));

  for (const char* name : {"a b", "a\nb", "a'b", "a;b", "", "-a"}) {
    plan = a_plan();
    plan.name = name;
    CHECK_MESSAGE(has(slurm_refusal(plan), "the name of the job must be"), name);
  }
  for (const char* partition : {"a b", "a\nb", "a'b", "a;b", "-a"}) {
    plan = a_plan();
    plan.partition = partition;
    CHECK_MESSAGE(has(slurm_refusal(plan), "a partition must be"), partition);
  }
  plan = a_plan();
  plan.job_file = "/a\n/b.toml";
  CHECK(has(slurm_refusal(plan), "the job file's path has a control character"));
  plan = a_plan();
  plan.data = "/a\nb";
  CHECK(has(slurm_refusal(plan), "--data has a control character"));
}

TEST_CASE("slurm: a coordinator is at a node by its name") {
  LaunchPlan plan = a_plan();
  for (const char* host : {"10.0.0.1", "fe80::1", "a b", ""}) {
    plan.coordinators = {{host, 7000}};
    CHECK_MESSAGE(!slurm_refusal(plan).empty(), host);
  }
}

TEST_CASE("launch: a job that does not wait as long as a queue may take is refused") {
  Job job;
  CHECK(has(check_patience(job).error().text(), "[elastic].start_timeout_ms is 30000"));
  job.elastic.start_timeout_ms = kEngineWaitMs;
  CHECK(has(check_patience(job).error().text(), "[elastic].coordinator_timeout_ms is 30000"));
  job.elastic.coordinator_timeout_ms = kEngineWaitMs;
  CHECK(check_patience(job));
}

TEST_CASE("launch: there are keys for workers that come later") {
  CHECK(keys_for(1) == 16);
  CHECK(keys_for(20) == 40);
  CHECK(keys_for(4096) == 4096);
}

}  // namespace
}  // namespace starling::tools
