#include <doctest/doctest.h>

#include "tests/launch/a_plan.h"

namespace starling::tools {
namespace {

LaunchPlan in_a_cloud() {
  LaunchPlan plan = a_plan();
  plan.coordinators = {{"coordinator.example", 7000}};
  plan.image = "registry.example/starling:1";
  plan.data = "/data/it's here";
  return plan;
}

// Goal: each worker is a thing of its own that the tool brings back: none waits for another.
TEST_CASE("skypilot: a worker is a managed job on a spot machine, begun again when it has left") {
  const Launch launch = skypilot_files(in_a_cloud()).value();
  const std::string worker = text_of(launch, "worker.sky.yaml");
  for (const char* part :
       {"\n  use_spot: true\n", "\n  image_id: \"docker:registry.example/starling:1\"\n",
        "recover_on_exit_codes: [143]",
        "\n  exec starling worker --data '/data/it'\\''s here' --threads 1 --notice 30 --wait "
        "900\n"})
    CHECK_MESSAGE(has(worker, part), part);
  CHECK(!has(worker, "accelerators"));
  CHECK(has(text_of(launch, "workers.sh"),
            "sky jobs launch --yes --detach-run --name tiny-worker-$number "));
  CHECK(launch.start.empty());
}

TEST_CASE("dstack: a worker is a task on a spot machine, begun again when it was interrupted") {
  LaunchPlan plan = in_a_cloud();
  plan.gpu = "A100";
  plan.threads = 4;
  plan.notice_s = 60;
  const Launch launch = dstack_files(plan).value();
  const std::string worker = text_of(launch, "worker.dstack.yml");
  for (const char* part :
       {"type: task\n", "\nspot_policy: spot\n", "\n  cpu: 4..\n", "\n  gpu: \"A100\"\n",
        "\nenv:\n  - STARLING_JOIN", "\nstop_duration: 75s\n", "--threads 4 --notice 60 "})
    CHECK_MESSAGE(has(worker, part), part);
  CHECK(has(text_of(launch, "workers.sh"),
            "dstack apply --yes --detach --name tiny-worker-$number "));
}

TEST_CASE("cloud: the coordinators are scripts for machines that stay") {
  LaunchPlan plan = in_a_cloud();
  plan.coordinators = {{"10.0.0.1", 7000}, {"10.0.0.2", 7000}, {"10.0.0.3", 7001}};
  const Launch launch = skypilot_files(plan).value();
  const std::string last = text_of(launch, "coordinator-2.sh");
  for (const char* part :
       {"new=\n[ -e coordinator-2-state ] || new=--new\n", "--keys keys/coordinator-2 ",
        "--listen 0.0.0.0:7001 --peers 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7001 "})
    CHECK_MESSAGE(has(last, part), part);
  CHECK(has(text_of(launch, "README.md"),
            "At 10.0.0.3:\n\n    nohup sh coordinator-2.sh > coordinator-2.log"));
}

TEST_CASE("cloud: what machines of a cloud do not have is refused") {
  LaunchPlan gpu = in_a_cloud();
  gpu.job.isa = "cuda";
  CHECK(has(skypilot_files(gpu).error().text(), "needs --gpu"));
  LaunchPlan shared = in_a_cloud();
  shared.job.checkpoint.dir = "/shared/checkpoints";
  shared.job.checkpoint.every = 10;
  CHECK(has(dstack_files(shared).error().text(), "share no folder, expected s3://BUCKET/PREFIX"));
  shared.job.checkpoint.dir = "s3://bucket/run";
  CHECK(dstack_files(shared));
  LaunchPlan line = in_a_cloud();
  line.data = "/data\nrm";
  CHECK(has(skypilot_files(line).error().text(), "--data has a control character"));
}

TEST_CASE("ray: an actor for each worker, in the folder that every node reaches") {
  LaunchPlan plan = a_plan();
  plan.python = "/env/bin/python";
  plan.data = "/data/\"x\"";
  plan.threads = 2;
  const Launch launch = ray_files(plan).value();
  const std::string workers = text_of(launch, "workers.py");
  for (const char* part :
       {"PROGRAM = \"starling\"\n",
        "OPTIONS = \"--data '/data/\\\"x\\\"' --threads 2 --notice 30 --wait 900\"\n",
        "@ray.remote(num_cpus=2, max_restarts=-1", "\"STARLING_PYTHON\": \"/env/bin/python\"}"})
    CHECK_MESSAGE(has(workers, part), part);
  CHECK(has(text_of(launch, "coordinator.sh"), "--peers n4:7000 --workers 2 "));
  plan.job.isa = "cuda";
  CHECK(has(text_of(ray_files(plan).value(), "workers.py"), "num_cpus=2, num_gpus=1, "));
}

}  // namespace
}  // namespace starling::tools
