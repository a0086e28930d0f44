#include <doctest/doctest.h>

#include "tests/launch/a_plan.h"

namespace starling::tools {
namespace {

LaunchPlan of_kubernetes(std::uint32_t coordinators = 1) {
  LaunchPlan plan = a_plan();
  plan.coordinators = kubernetes_coordinators(plan.name, coordinators);
  plan.image = "registry.example/starling:1";
  plan.claim = "training";
  plan.folder = "/training";
  return plan;
}

std::string kubernetes_refusal(const LaunchPlan& plan) {
  const auto launch = kubernetes_files(plan);
  return launch ? "" : launch.error().text();
}

// Goal: the Job is told what the exit codes of a leave and of an end, and an eviction, mean. Whether a manifest is one, and
// its references lead somewhere, kubernetes_test.py of tests/engines says.
TEST_CASE(
    "kubernetes: a worker that has left begins again, and the job is done with the first model") {
  LaunchPlan plan = of_kubernetes();
  plan.notice_s = 100;
  plan.threads = 8;
  const std::string workers = text_of(kubernetes_files(plan).value(), "workers.yaml");
  for (const char* part :
       {"completions: 3\n", "parallelism: 3\n", "terminationGracePeriodSeconds: 115\n",
        "--threads 8 --notice 100 \\\n", "--wait 900 --drained-code 7\n", "succeededCount: 1\n",
        "            - 7\n", "cpu: 8\n", "runAsNonRoot: true\n", "readOnlyRootFilesystem: true\n",
        "subPathExpr: worker-$(WORKER).token\n"})
    CHECK_MESSAGE(has(workers, part), part);
  CHECK(workers.find("- action: Ignore\n") < workers.find("- 143\n"));
  CHECK(!has(workers, "nvidia.com/gpu"));
}

// Kueue refuses a Job of which all workers may be the part that begins.
TEST_CASE("kubernetes: a queue begins a part of the workers, if it is not all of them") {
  LaunchPlan plan = of_kubernetes();
  plan.queue = "2-gpu.team";
  plan.min_workers = 2;
  const auto workers = [&] { return text_of(kubernetes_files(plan).value(), "workers.yaml"); };
  CHECK(has(workers(), "kueue.x-k8s.io/queue-name: \"2-gpu.team\"\n"));
  CHECK(has(workers(), "kueue.x-k8s.io/job-min-parallelism: \"2\"\n"));
  plan.min_workers = plan.workers;
  CHECK(!has(workers(), "job-min-parallelism"));
  for (const char* name : {"-a", "a-", "A", "a b", "a\"b"}) {
    plan.queue = name;
    CHECK(kubernetes_refusal(plan).find("--queue") != std::string::npos);
  }
}

// Goal: nothing secret is copied to workers, and coordinators let in this account alone.
TEST_CASE("kubernetes: workers show tokens of their service account instead of having keys") {
  LaunchPlan plan = of_kubernetes();
  plan.identity = true;
  plan.tokens = 0;
  CHECK(kubernetes_refusal(plan).find("this one has no [identity]") != std::string::npos);
  plan.job.identity.issuer = "https://id.example/cluster";
  plan.job.identity.audience = "star ling";
  Launch launch = kubernetes_files(plan).value();
  const std::string workers = text_of(launch, "workers.yaml");
  for (const char* part :
       {"kind: ServiceAccount\n", "serviceAccountName: tiny-worker\n", "audience: \"star ling\"\n",
        "--join /starling/join/join.public --identity-token /starling/identity/token --threads",
        "name: tiny-join\n"})
    CHECK_MESSAGE(has(workers, part), part);
  CHECK(workers.find("kind: ServiceAccount") < workers.find("kind: Job"));
  CHECK_FALSE(has(workers, "worker-tokens"));
  const std::string list = text_of(launch, "kustomization.yaml");
  CHECK(has(list, "      - keys/join.public\n"));
  CHECK_FALSE(has(list, "worker-"));
  CHECK_FALSE(has(text_of(launch, "coordinators.yaml"), "--identity-ca"));
  CHECK(has(text_of(launch, "README.md"), "system:serviceaccount:NAMESPACE:tiny-worker"));
  // An issuer inside the cluster has a certificate of the cluster's own.
  plan.job.identity.issuer = "https://kubernetes.default.svc.cluster.local";
  const std::string coordinators = text_of(kubernetes_files(plan).value(), "coordinators.yaml");
  CHECK(has(coordinators, "--identity-ca /starling/cluster/ca.crt"));
  CHECK(has(coordinators, "name: kube-root-ca.crt\n"));
  // Another account would be refused by every coordinator.
  plan.job.identity.claims = {{{"sub"}, {"system:serviceaccount:lab:tiny-worker"}}};
  CHECK(kubernetes_refusal(plan) == "");
  plan.name_space = "lab";
  CHECK(kubernetes_refusal(plan) == "");
  plan.name_space = "other";
  CHECK(kubernetes_refusal(plan).find("the workers' service account is "
                                      "system:serviceaccount:other:tiny-worker") !=
        std::string::npos);
  plan.name_space.clear();
  plan.job.identity.claims = {{{"sub"}, {"system:serviceaccount:lab:worker"}}};
  CHECK(kubernetes_refusal(plan).find("[identity.claims].sub lets in ") == 0);
  plan.job.identity.claims.clear();
  plan.job.identity.audience = "a\"b";
  CHECK(kubernetes_refusal(plan).find("cannot quote") != std::string::npos);
}

// Trainer refuses a TrainJob whose runtime is not there yet.
TEST_CASE("kubernetes: a TrainJob stands behind its runtime, and kustomize leaves it there") {
  LaunchPlan plan = of_kubernetes();
  plan.workers_as = WorkersAs::kTrainJob;
  const Launch launch = kubernetes_files(plan).value();
  const std::string workers = text_of(launch, "workers.yaml");
  CHECK(workers.find("kind: TrainingRuntime") < workers.find("kind: TrainJob\n"));
  CHECK(has(text_of(launch, "kustomization.yaml"), "order: fifo\n"));
  CHECK(has(text_of(launch, "README.md"), "trainjob/tiny-worker\n"));
}

TEST_CASE("kubernetes: a job that computes on a GPU asks for one") {
  LaunchPlan plan = of_kubernetes();
  plan.job.isa = "cuda";
  CHECK(has(text_of(kubernetes_files(plan).value(), "workers.yaml"),
            "            limits:\n              nvidia.com/gpu: 1\n"));
}

TEST_CASE("kubernetes: three coordinators are spread, and two of them are always there") {
  const Launch launch = kubernetes_files(of_kubernetes(3)).value();
  const std::string text = text_of(launch, "coordinators.yaml");
  for (const char* part :
       {"replicas: 3\n", "kind: PodDisruptionBudget\n", "topologySpreadConstraints:\n",
        "--peers tiny-coordinator-0.tiny-coordinators:7000,tiny-coordinator-1.tiny-coordinators:"
        "7000,tiny-coordinator-2.tiny-coordinators:7000 "})
    CHECK_MESSAGE(has(text, part), part);
  CHECK(has(text_of(launch, "kustomization.yaml"), "- keys/coordinator-2\n"));
  CHECK(!has(text_of(kubernetes_files(of_kubernetes()).value(), "coordinators.yaml"),
             "PodDisruptionBudget"));
}

TEST_CASE("kubernetes: every token is in the Secret, also of workers that come later") {
  LaunchPlan plan = of_kubernetes();
  plan.tokens = 17;
  const std::string text = text_of(kubernetes_files(plan).value(), "kustomization.yaml");
  CHECK(has(text, "- keys/worker-16.token\n"));
  CHECK(!has(text, "- keys/worker-17.token\n"));
  plan.tokens = 1001;
  CHECK(has(kubernetes_refusal(plan), "a Secret has room for the tokens of 1000 workers"));
}

// Goal: nothing that a user says has a meaning of its own in YAML, in a shell or for Kubernetes.
TEST_CASE("kubernetes: what would need quotes is refused") {
  for (const char* text : {"", "a b", "a\nb", "A", "a:b", "a'", "$(x)", "a_b", "a.b", "-a", "a-",
                           "1", "a01234567890123456789012345678901234567890123456789"}) {
    for (std::string LaunchPlan::*const field :
         {&LaunchPlan::name, &LaunchPlan::claim, &LaunchPlan::name_space}) {
      if (field == &LaunchPlan::name_space && *text == '\0') continue;
      LaunchPlan plan = of_kubernetes();
      plan.*field = text;
      CHECK_MESSAGE(!kubernetes_refusal(plan).empty(), text);
    }
  }
  for (const char* text : {"", "a b", "a\nb", "a'", "$(x)", "a;b", "a#b"}) {
    for (std::string LaunchPlan::*const field :
         {&LaunchPlan::image, &LaunchPlan::program, &LaunchPlan::folder}) {
      LaunchPlan plan = of_kubernetes();
      plan.*field = field == &LaunchPlan::folder ? std::string("/") + text : text;
      const std::string said = kubernetes_refusal(plan);
      CHECK_MESSAGE(!said.empty(), text);
      CHECK(said.find('\n') == std::string::npos);
    }
  }
}

TEST_CASE("kubernetes: a name that YAML takes for something else is a name") {
  LaunchPlan plan = of_kubernetes();
  plan.name = plan.claim = plan.name_space = "true";
  plan.image = "1:20";
  const Launch launch = kubernetes_files(plan).value();
  CHECK(has(text_of(launch, "workers.yaml"), "app.kubernetes.io/instance: \"true\"\n"));
  CHECK(has(text_of(launch, "workers.yaml"), "claimName: \"true\"\n"));
  CHECK(has(text_of(launch, "workers.yaml"), "image: \"1:20\"\n"));
  CHECK(has(text_of(launch, "kustomization.yaml"), "namespace: \"true\"\n"));
}

TEST_CASE("kubernetes: one worker alone may be evicted") {
  LaunchPlan plan = of_kubernetes();
  CHECK(has(text_of(kubernetes_files(plan).value(), "workers.yaml"), "minAvailable: 1\n"));
  plan.workers = plan.min_workers = 1;
  CHECK(!has(text_of(kubernetes_files(plan).value(), "workers.yaml"), "PodDisruptionBudget"));
}

TEST_CASE("kubernetes: checkpoints lie on the volume") {
  LaunchPlan plan = of_kubernetes();
  plan.job.checkpoint.dir = "s3://bucket/x";
  const auto pods = kubernetes_files(plan);
  REQUIRE(pods);
  for (const char* file : {"coordinators.yaml", "workers.yaml"})
    CHECK(has(text_of(pods.value(), file), "          envFrom:\n            - secretRef: {name: " +
                                               plan.name + "-store, optional: true}\n"));
  plan.job.checkpoint.dir = "/training/checkpoints";
  CHECK(kubernetes_refusal(plan).empty());
  plan.job.checkpoint.dir = "/trainings/checkpoints";
  CHECK(has(kubernetes_refusal(plan), "expected a folder of the volume, below /training"));
}

}  // namespace
}  // namespace starling::tools
