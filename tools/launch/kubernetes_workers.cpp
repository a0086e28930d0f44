// What the workers of a job are on Kubernetes: an indexed Job, which every cluster has, or the same Job within a JobSet or
// a TrainingRuntime of Kubeflow, where people queue these (decision 065).

#include "tools/launch/kubernetes_workers.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::tools {
namespace {

// Lines of a file begin with what its workers are.
constexpr const char* kHead =
    R"(# The workers. Training begins when {{min_workers}} of them are there; each further one joins when there is room for it.
)";

// Of the object that a queue admits. A part of a plain Job's workers may begin while others wait for their quota; Kueue
// refuses a part that is all of them.
constexpr const char* kQueue = R"(    kueue.x-k8s.io/queue-name: "{{queue}}"
)";
constexpr const char* kQueueOfJob = R"(  annotations:
    kueue.x-k8s.io/job-min-parallelism: "{{min_workers}}"
    kueue.x-k8s.io/job-completions-equal-parallelism: "true"
)";

constexpr const char* kLabels = R"(  labels:
    app.kubernetes.io/name: starling
    app.kubernetes.io/instance: "{{name}}"
    app.kubernetes.io/component: worker
{{queue_label}})";

constexpr const char* kJobHead = R"(apiVersion: batch/v1
kind: Job
metadata:
  name: {{name}}-worker
{{labels}}{{queue_annotations}}spec:
)";

constexpr const char* kJobSetHead = R"(apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {{name}}-worker
{{labels}}spec:
  network:
    enableDNSHostnames: false
  successPolicy:
    operator: Any
    targetReplicatedJobs:
      - node
  replicatedJobs:
    - name: node
      replicas: 1
      template:
        spec:
)";

// A TrainJob says which runtime it uses, which has to be there before it, and how many nodes. Kubeflow calls the
// container of one `node`.
constexpr const char* kTrainJob = R"(---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {{name}}-worker
{{labels}}spec:
  runtimeRef:
    apiGroup: trainer.kubeflow.org
    kind: TrainingRuntime
    name: {{name}}
  trainer:
    numNodes: {{workers}}
)";

constexpr const char* kRuntimeHead = R"(apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata:
  name: {{name}}
  labels:
    app.kubernetes.io/name: starling
    app.kubernetes.io/instance: "{{name}}"
    trainer.kubeflow.org/framework: starling
spec:
  mlPolicy:
    numNodes: {{workers}}
  template:
    spec:
      network:
        enableDNSHostnames: false
      successPolicy:
        operator: Any
        targetReplicatedJobs:
          - node
      replicatedJobs:
        - name: node
          replicas: 1
          template:
            metadata:
              labels:
                trainer.kubeflow.org/trainjob-ancestor-step: trainer
            spec:
)";

// The spec of the Job, as deep as it lies in a Job of its own.
constexpr const char* kSpec =
    R"(  # {{index}}{{numbers}}
  completionMode: Indexed
  completions: {{workers}}
  parallelism: {{workers}}
  # The training is done when a worker has the model; who still waits for a node is not needed any more.
  successPolicy:
    rules:
      - succeededCount: 1
  backoffLimitPerIndex: 100
  podReplacementPolicy: Failed
  podFailurePolicy:
    rules:
      # A worker that has left as it was told to, or whose node was taken, begins again.
      - action: Ignore
        onExitCodes:
          containerName: {{container_name}}
          operator: In
          values:
            - 143
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
      # Wrong input, and ends of the job, are the same the next time; 7: an admin has drained or evicted the worker.
      - action: FailIndex
        onExitCodes:
          containerName: {{container_name}}
          operator: In
          values:
            - 1
            - 2
            - 4
            - 6
            - 7
  template:
    metadata:
      labels:
        app.kubernetes.io/name: starling
        app.kubernetes.io/instance: "{{name}}"
        app.kubernetes.io/component: worker
    spec:
{{account}}      restartPolicy: Never
      # {{notice}} seconds for a worker to leave after SIGTERM, and some to end.
      terminationGracePeriodSeconds: {{grace}}
{{pod}}      containers:
        - name: {{container_name}}
{{container}}{{store}}          env:
            - name: WORKER
              valueFrom:
                fieldRef:
                  fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
          command:
            - sh
            - -c
            - |
              mkdir -p {{folder}}/{{name}}/worker-$WORKER && cd {{folder}}/{{name}}/worker-$WORKER || exit
              exec {{program}} worker {{joins}} --threads {{threads}} --notice {{notice}} \
                --wait {{wait}} --drained-code 7
          resources:
            requests:
              cpu: {{threads}}
              memory: 1Gi
{{gpu}}          volumeMounts:
{{key_mounts}}            - name: tmp
              mountPath: /tmp
            - name: volume
              mountPath: {{folder}}
      volumes:
{{key_volumes}}        - name: tmp
          emptyDir: {}
        - name: volume
          persistentVolumeClaim:
            claimName: "{{claim}}"
)";

// How a worker is let in: by the token of its number, or by what the cluster says of its service account.
constexpr const char* kTokenMounts = R"(            # Its own token, of all that the Secret has.
            - name: tokens
              mountPath: /starling/token
              subPathExpr: worker-$(WORKER).token
)";
constexpr const char* kTokenVolumes = R"(        - name: tokens
          secret:
            secretName: {{name}}-worker-tokens
            defaultMode: 0440
)";
constexpr const char* kIdentityMounts = R"(            - name: join
              mountPath: /starling/join
            - name: identity
              mountPath: /starling/identity
)";
constexpr const char* kIdentityVolumes = R"(        - name: join
          configMap:
            name: {{name}}-join
        # Of the pod's service account, for this audience alone; the kubelet renews it.
        - name: identity
          projected:
            sources:
              - serviceAccountToken:
                  path: token
                  audience: "{{audience}}"
                  expirationSeconds: 600
)";
constexpr const char* kAccount =
    R"(# As its name, "{{subject}}", tokens of the workers say what they are of.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{name}}-worker
  labels:
    app.kubernetes.io/name: starling
    app.kubernetes.io/instance: "{{name}}"
automountServiceAccountToken: false
---
)";

std::string indented(const std::string& lines, std::size_t by) {
  std::string out;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at) + 1;
    if (lines[at] != '\n') out += std::string(by, ' ');
    out += lines.substr(at, end - at);
    at = end;
  }
  return out;
}

}  // namespace

std::string workers_text(const LaunchPlan& plan, Fields fields) {
  fields.emplace_back("queue", plan.queue);
  fields.emplace_back("container_name",
                      plan.workers_as == WorkersAs::kTrainJob ? "node" : "worker");
  fields.emplace_back("queue_label", plan.queue.empty() ? "" : fill(kQueue, fields));
  fields.emplace_back("queue_annotations", plan.queue.empty() || plan.min_workers >= plan.workers
                                               ? ""
                                               : fill(kQueueOfJob, fields));
  fields.emplace_back("labels", fill(kLabels, fields));
  fields.emplace_back("audience", plan.job.identity.audience);
  fields.emplace_back("subject", worker_subject(plan));
  const bool identity = plan.identity;
  fields.emplace_back("index", identity ? "The index of a pod is the number of its folder."
                                        : "The index of a pod is the number of its token.");
  fields.emplace_back("joins", identity ? "--join /starling/join/join.public --identity-token "
                                          "/starling/identity/token"
                                        : "--join /starling/token");
  fields.emplace_back("account",
                      identity ? fill("      serviceAccountName: {{name}}-worker\n", fields) : "");
  fields.emplace_back("key_mounts", identity ? kIdentityMounts : kTokenMounts);
  fields.emplace_back("key_volumes", fill(identity ? kIdentityVolumes : kTokenVolumes, fields));
  fields.emplace_back("numbers", plan.workers_as == WorkersAs::kJob
                                     ? " Both numbers may be changed together while the job runs."
                                     : "");
  const std::string spec = fill(kSpec, fields);
  // Before the pods that want it, wherever kustomize leaves the order.
  std::string text = fill(kHead, fields) + (identity ? fill(kAccount, fields) : "");
  switch (plan.workers_as) {
    case WorkersAs::kJob:
      text += fill(kJobHead, fields) + spec;
      break;
    case WorkersAs::kJobSet:
      text += fill(kJobSetHead, fields) + indented(spec, 8);
      break;
    case WorkersAs::kTrainJob:
      text += fill(kRuntimeHead, fields) + indented(spec, 12) + fill(kTrainJob, fields);
      break;
  }
  return text;
}

std::string worker_subject(const LaunchPlan& plan) {
  return "system:serviceaccount:" + (plan.name_space.empty() ? "NAMESPACE" : plan.name_space) +
         ":" + plan.name + "-worker";
}

Result<> check_workers_identity(const LaunchPlan& plan) {
  const IdentitySpec& identity = plan.job.identity;
  if (!identity.on())
    return Error(Code::kBadInput,
                 "--identity is for a job whose workers show tokens, and this one has no "
                 "[identity]; docs/identity.md");
  for (const std::string* text : {&identity.audience, &identity.issuer})
    if (text->find_first_of("\"\\$`") != std::string::npos || !check_line("[identity]", *text))
      return Error(
          Code::kBadInput,
          "[identity] has characters that a manifest cannot quote, expected none of \" \\ $ "
          "` and no control characters, is " +
              *text);
  for (const ClaimRule& rule : identity.claims) {
    if (rule.path != std::vector<std::string>{"sub"}) continue;
    const std::string subject = worker_subject(plan);
    const std::string end = subject.substr(subject.rfind(':'));
    const auto lets_in = [&](const std::string& value) {
      return plan.name_space.empty()
                 ? value.starts_with("system:serviceaccount:") && value.ends_with(end)
                 : value == subject;
    };
    if (std::ranges::none_of(rule.values, lets_in))
      return Error(Code::kBadInput, "[identity.claims].sub lets in " + rule.values.front() +
                                        ", and the workers' service account is " + subject +
                                        "; --name and --namespace");
  }
  return ok();
}

WorkersObject workers_object(const LaunchPlan& plan) {
  const std::string name = plan.name + "-worker";
  switch (plan.workers_as) {
    case WorkersAs::kJob:
      return {"job/" + name, "complete", "Job"};
    case WorkersAs::kJobSet:
      return {"jobset/" + name, "Completed", "JobSet"};
    case WorkersAs::kTrainJob:
      return {"trainjob/" + name, "Complete", "TrainJob"};
  }
  STARLING_CHECK(false);
  return {};
}

}  // namespace starling::tools
