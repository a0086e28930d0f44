// What the workers of a job are on Kubernetes: an indexed Job, which every cluster has, or the same Job within a JobSet or
// a TrainingRuntime of Kubeflow, where people queue these (decision 065).

#include "tools/launch/kubernetes_workers.h"

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
    R"(  # The index of a pod is the number of its token.{{numbers}}
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
      restartPolicy: Never
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
              exec {{program}} worker --join /starling/token --threads {{threads}} --notice {{notice}} \
                --wait {{wait}} --drained-code 7
          resources:
            requests:
              cpu: {{threads}}
              memory: 1Gi
{{gpu}}          volumeMounts:
            # Its own token, of all that the Secret has.
            - name: tokens
              mountPath: /starling/token
              subPathExpr: worker-$(WORKER).token
            - name: tmp
              mountPath: /tmp
            - name: volume
              mountPath: {{folder}}
      volumes:
        - name: tokens
          secret:
            secretName: {{name}}-worker-tokens
            defaultMode: 0440
        - name: tmp
          emptyDir: {}
        - name: volume
          persistentVolumeClaim:
            claimName: "{{claim}}"
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
  fields.emplace_back("numbers", plan.workers_as == WorkersAs::kJob
                                     ? " Both numbers may be changed together while the job runs."
                                     : "");
  const std::string spec = fill(kSpec, fields);
  std::string text = fill(kHead, fields);
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
