// A job on Kubernetes: a folder for `kubectl apply -k`, with a StatefulSet of coordinators and an
// indexed Job of workers, whose index is the number of a worker's token (decision 065). The Job may lie in an object of
// others (kubernetes_workers.h).
//
// Names of users are checked here: what is put into a manifest needs nothing of YAML but quotes around
// it where it could be a number, and nothing of a shell nor of Kubernetes' own $(NAME) in a command.

#include <algorithm>

#include "core/base/s3_place.h"
#include "tools/launch/kubernetes_workers.h"
#include "tools/launch/plan.h"
#include "tools/launch/text.h"

namespace starling::tools {
namespace {

// So that the names of a job's parts are no longer than a name may be, 63.
constexpr std::size_t kKubernetesNameMax = 40;
// Of less than 1,000 bytes each: a Secret holds 1 MiB.
constexpr std::uint32_t kTokensMax = 1000;

constexpr const char* kKustomization = R"(# kubectl apply -k .
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
{{order}}{{namespace}}resources:
  - coordinators.yaml
  - workers.yaml
  - network.yaml
generatorOptions:
  # A key that is added would give its Secret another name, and the workers, which cannot be changed, have this.
  disableNameSuffixHash: true
  labels:
    app.kubernetes.io/name: starling
    app.kubernetes.io/instance: "{{name}}"
configMapGenerator:
  - name: {{name}}-job
    files:
      - job.toml
{{join}}secretGenerator:
  - name: {{name}}-coordinator-keys
    files:
{{coordinator_keys}}{{tokens}})";

// Addresses and public keys: nothing of it is secret.
constexpr const char* kJoin = R"(  - name: {{name}}-join
    files:
      - keys/join.public
)";
constexpr const char* kTokens = R"(  - name: {{name}}-worker-tokens
    files:
)";

// An issuer within the cluster has a certificate of the cluster's own CA, which each namespace has.
constexpr const char* kInCluster = "https://kubernetes.default.svc";
constexpr const char* kCaMount = R"(            - name: cluster-ca
              mountPath: /starling/cluster
)";
constexpr const char* kCaVolume = R"(        - name: cluster-ca
          configMap:
            name: kube-root-ca.crt
)";

// Of pods whose checkpoints or data are in object storage: its key, unless a service account has it.
constexpr const char* kKubernetesStore = R"(          envFrom:
            - secretRef: {name: {{name}}-store, optional: true}
)";
constexpr const char* kKubernetesReadmeStore =
    R"(- {{store}}; and the image needs certificates (Debian's `ca-certificates`). Before `kubectl apply`:
  `kubectl{{in}} create secret generic {{name}}-store --from-env-file=store.env`, with lines `AWS_ACCESS_KEY_ID=..` (docs/s3.md).
)";

// Of the pods of both kinds.
constexpr const char* kPod = R"(      automountServiceAccountToken: false
      enableServiceLinks: false
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile:
          type: RuntimeDefault
)";

constexpr const char* kContainer = R"(          image: "{{image}}"
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop:
                - ALL
)";

constexpr const char* kCoordinators =
    R"(# They decide who takes part in the job, and compute nothing. Best on nodes that stay.
apiVersion: v1
kind: Service
metadata:
  name: {{name}}-coordinators
  labels: &labels
    app.kubernetes.io/name: starling
    app.kubernetes.io/instance: "{{name}}"
    app.kubernetes.io/component: coordinator
spec:
  # Headless: each coordinator has a name of its own, which it has before it is ready, too.
  clusterIP: None
  publishNotReadyAddresses: true
  selector: *labels
  ports:
    - name: control
      port: 7000
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{name}}-coordinator
  labels: &labels
    app.kubernetes.io/name: starling
    app.kubernetes.io/instance: "{{name}}"
    app.kubernetes.io/component: coordinator
spec:
  serviceName: {{name}}-coordinators
  replicas: {{coordinators}}
  podManagementPolicy: Parallel
  selector:
    matchLabels: *labels
  template:
    metadata:
      labels: *labels
    spec:
{{pod}}{{spread}}      containers:
        - name: coordinator
{{container}}{{store}}          env:
            - name: POD
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
          command:
            - sh
            - -c
            # --new begins the group. Started again, a coordinator goes on with what is in its state.
            - |
              cd /starling/state
              {{begin}}
              exec {{program}} coordinator --job /starling/job/job.toml --keys /starling/keys/coordinator-${POD##*-} \
                --listen 0.0.0.0:7000 --peers {{peers}} \
                --workers {{min_workers}} --state log --out out{{identity_ca}} $new
          ports:
            - name: control
              containerPort: 7000
          resources:
            requests:
              cpu: 100m
              memory: 256Mi
          volumeMounts:
            - name: job
              mountPath: /starling/job
            - name: keys
              mountPath: /starling/keys
            - name: state
              mountPath: /starling/state
{{ca_mount}}            - name: tmp
              mountPath: /tmp
            - name: volume
              mountPath: {{folder}}
      volumes:
{{ca_volume}}        - name: job
          configMap:
            name: {{name}}-job
        - name: keys
          secret:
            secretName: {{name}}-coordinator-keys
            defaultMode: 0440
        - name: tmp
          emptyDir: {}
        - name: volume
          persistentVolumeClaim:
            claimName: "{{claim}}"
  # What was decided is of use to this job alone.
  persistentVolumeClaimRetentionPolicy:
    whenDeleted: Delete
    whenScaled: Retain
  volumeClaimTemplates:
    - metadata:
        name: state
      spec:
        accessModes:
          - ReadWriteOnce
        resources:
          requests:
            storage: 1Gi
{{budget}})";

// Of three or five, those that are left must be more than half. One alone may move: workers wait for it.
constexpr const char* kSpread = R"(      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: *labels
)";
constexpr const char* kBudget = R"(---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{name}}-coordinators
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: starling
      app.kubernetes.io/instance: "{{name}}"
      app.kubernetes.io/component: coordinator
)";

// One worker alone may move: it writes a checkpoint.
constexpr const char* kWorkerBudget = R"(---
# Where nodes are drained one after the other, a worker stays that has the state.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{name}}-workers
spec:
  minAvailable: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: starling
      app.kubernetes.io/instance: "{{name}}"
      app.kubernetes.io/component: worker
)";

constexpr const char* kGpu = R"(            limits:
              nvidia.com/gpu: 1
)";

constexpr const char* kNetwork =
    R"(# Nobody outside of the job reaches its pods: workers and coordinators reach coordinators, workers reach workers.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{name}}-coordinators
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: starling
      app.kubernetes.io/instance: "{{name}}"
      app.kubernetes.io/component: coordinator
  policyTypes:
    - Ingress
  ingress:
    - from:
        - podSelector:
            matchLabels:
              app.kubernetes.io/name: starling
              app.kubernetes.io/instance: "{{name}}"
      ports:
        - port: 7000
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{name}}-workers
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: starling
      app.kubernetes.io/instance: "{{name}}"
      app.kubernetes.io/component: worker
  policyTypes:
    - Ingress
  ingress:
    - from:
        - podSelector:
            matchLabels:
              app.kubernetes.io/name: starling
              app.kubernetes.io/instance: "{{name}}"
              app.kubernetes.io/component: worker
)";

// The number of a JobSet's pods cannot be changed.
constexpr const char* kReadmeMore =
    R"(- More workers: `kubectl{{in}} patch job {{name}}-worker -p '{"spec":{"completions":{{more}},"parallelism":{{more}}}}'`; there are
  tokens for {{keys}}.
)";

constexpr const char* kReadmeMoreIdentity =
    R"(- More workers: `kubectl{{in}} patch job {{name}}-worker -p '{"spec":{"completions":{{more}},"parallelism":{{more}}}}'`.
)";

constexpr const char* kReadmeIdentity =
    R"(- No worker has a key: each shows the token of its service account, of audience `{{audience}}` and with
  `sub` = `{{subject}}`, to coordinators that ask {{issuer}} for its keys
  (docs/identity.md; `kubectl get --raw /.well-known/openid-configuration` says what this cluster's issuer is called).
)";

constexpr const char* kReadmeQueue =
    R"(- The workers wait for the LocalQueue `{{queue}}` of Kueue, which has to be there: `kubectl{{in}} get workloads` says for what.
)";

constexpr const char* kKubernetesReadme = R"(# The job {{name}} on Kubernetes

Written by `starling launch kubernetes`. All commands are typed in this folder. The image `{{image}}` has the program, and the
PersistentVolumeClaim `{{claim}}` is there: every pod mounts it (ReadWriteMany) at `{{folder}}`, and the user 10001 can write
to it. What lay below the job file's folder has to lie below `{{folder}}` there: data, checkpoints (`job.toml` has the paths).

{{start}}

Training begins when {{min_workers}} of the {{workers}} workers are there.

    kubectl{{in}} logs -f {{name}}-coordinator-0
    kubectl{{in}} wait --for=condition={{condition}} --timeout=-1s {{object}}

Each worker that was there at the end has written the model: `{{folder}}/{{name}}/worker-0/model.safetensors` and so on. Then:

    kubectl{{in}} cp {{name}}-coordinator-0:/starling/state/out out     (its events, which go with its volume)
    kubectl delete -k .

To end the job before, let the workers go first. With a `[checkpoint]` section in `job.toml` they write a last one, which takes a
coordinator, and with that section the job goes on from there when it is applied again:

    kubectl{{in}} delete {{object}} --cascade=foreground
    kubectl delete -k . --ignore-not-found

{{readme_more}}{{readme_queue}}- After the end the coordinators are started again and again, which harms nothing, until they are deleted.
- `resources` are what is asked for, not limits; what a job needs, `starling check` says of its file.
{{readme_keys}}{{readme_store}})";

Result<> check_path(const std::string& what, const std::string& path) {
  if (path.size() > 1 && path.front() == '/' &&
      path.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") ==
          std::string::npos)
    return ok();
  STARLING_TRY(check_line(what, path));
  return Error(Code::kBadInput, what +
                                    " must be an absolute path of letters, digits, _, -, . and /, "
                                    "as pods have it, is " +
                                    path);
}

Result<> check_dns_name(const std::string& what, const std::string& name) {
  const bool letter = !name.empty() && name.front() >= 'a' && name.front() <= 'z';
  const bool lower = name.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos;
  if (letter && lower && name.size() <= kKubernetesNameMax && !name.ends_with('-') &&
      check_name(what, name, "-"))
    return ok();
  STARLING_TRY(check_line(what, name));
  return Error(Code::kBadInput,
               what + " must be a name of Kubernetes, 1 to " + std::to_string(kKubernetesNameMax) +
                   " lower-case letters, digits and -, the first a letter, is \"" + name + "\"");
}

// A queue is named by a label.
Result<> check_queue(const std::string& name) {
  const auto good = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.size() <= 63 && good(name.front()) && good(name.back()) &&
      std::ranges::all_of(name, [&](char c) { return good(c) || c == '-' || c == '.'; }))
    return ok();
  STARLING_TRY(check_line("--queue", name));
  return Error(Code::kBadInput,
               "--queue must be the name of a LocalQueue, of at most 63 lower-case letters, "
               "digits, - and ., is \"" +
                   name + "\"");
}

Result<> check_kubernetes(const LaunchPlan& plan) {
  STARLING_TRY(check_dns_name("the name of the job", plan.name));
  STARLING_TRY(check_dns_name("the claim of --volume", plan.claim));
  if (!plan.name_space.empty()) {
    STARLING_TRY(check_dns_name("--namespace", plan.name_space));
  }
  if (!plan.queue.empty()) {
    STARLING_TRY(check_queue(plan.queue));
  }
  STARLING_TRY(check_path("the folder of --volume", plan.folder));
  STARLING_TRY(
      check_path("--program", plan.program.starts_with('/') ? plan.program : "/" + plan.program));
  if (plan.image.empty() || plan.image.size() > 255 ||
      plan.image.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@") !=
          std::string::npos)
    return Error(Code::kBadInput,
                 "--image must be the name of a container image, as registry.example/starling:1");
  if (plan.tokens > kTokensMax)
    return Error(Code::kBadInput, "a Secret has room for the tokens of " +
                                      std::to_string(kTokensMax) + " workers, and there are " +
                                      std::to_string(plan.tokens) + "; --workers, --keys");
  if (plan.identity) {
    STARLING_TRY(check_workers_identity(plan));
  }
  if (plan.job.checkpoint.on() && !s3::is_place(plan.job.checkpoint.dir) &&
      !plan.job.checkpoint.dir.starts_with(plan.folder + "/"))
    return Error(Code::kBadInput, "[checkpoint].dir is " + plan.job.checkpoint.dir +
                                      ", expected a folder of the volume, below " + plan.folder);
  return ok();
}

std::string list(const std::string& prefix, std::uint32_t count, const std::string& suffix) {
  std::string lines;
  for (std::uint32_t i = 0; i < count; ++i)
    lines +=
        "      - " + std::string(kLaunchKeys) + "/" + prefix + std::to_string(i) + suffix + "\n";
  return lines;
}

}  // namespace

std::vector<Address> kubernetes_coordinators(const std::string& name, std::uint32_t count) {
  std::vector<Address> all;
  for (std::uint32_t i = 0; i < count; ++i)
    all.push_back(
        {name + "-coordinator-" + std::to_string(i) + "." + name + "-coordinators", 7000});
  return all;
}

Result<Launch> kubernetes_files(const LaunchPlan& plan) {
  STARLING_TRY(check_kubernetes(plan));
  const auto coordinators = static_cast<std::uint32_t>(plan.coordinators.size());
  Launch launch;
  launch.start = {"kubectl apply -k ."};
  const std::string in = plan.name_space.empty() ? "" : " -n " + plan.name_space;
  const std::string store = store_text(plan);
  const Fields of_store{{"name", plan.name}, {"in", in}, {"store", store}};
  const WorkersObject object = workers_object(plan);
  const Fields of_more{{"in", in},
                       {"name", plan.name},
                       {"more", std::to_string(plan.workers + 2)},
                       {"keys", std::to_string(plan.tokens)}};
  const bool in_cluster = plan.identity && plan.job.identity.issuer.starts_with(kInCluster);
  const Fields fields{
      {"name", plan.name},
      {"store", store.empty() ? "" : fill(kKubernetesStore, of_store)},
      {"readme_store", store.empty() ? "" : fill(kKubernetesReadmeStore, of_store)},
      {"namespace", plan.name_space.empty() ? "" : "namespace: \"" + plan.name_space + "\"\n"},
      {"in", in},
      {"image", plan.image},
      {"program", plan.program},
      {"claim", plan.claim},
      {"folder", plan.folder},
      {"coordinators", std::to_string(coordinators)},
      {"peers", addresses(plan)},
      {"begin", begin_lines("log", plan.job, "\n              ")},
      {"wait", std::to_string(wait_s(plan.job))},
      {"workers", std::to_string(plan.workers)},
      {"object", object.name},
      {"condition", object.condition},
      // A TrainJob is refused before its runtime is there, and kustomize would put it first.
      {"order", plan.workers_as == WorkersAs::kTrainJob ? "sortOptions:\n  order: fifo\n" : ""},
      {"readme_queue",
       plan.queue.empty() ? "" : fill(kReadmeQueue, {{"queue", plan.queue}, {"in", in}})},
      {"readme_more", plan.workers_as == WorkersAs::kJob
                          ? fill(plan.identity ? kReadmeMoreIdentity : kReadmeMore, of_more)
                          : "- The number of these workers is fixed, and the cluster needs the "
                            "controller of this kind (" +
                                object.kind + ").\n"},
      {"min_workers", std::to_string(plan.min_workers)},
      {"keys", std::to_string(plan.tokens)},
      {"threads", std::to_string(plan.threads ? plan.threads : 1)},
      {"notice", std::to_string(plan.notice_s)},
      {"grace", std::to_string(plan.notice_s + kBeyondNoticeS)},
      {"gpu", plan.job.isa == "cuda" ? kGpu : ""},
      {"coordinator_keys", list("coordinator-", coordinators, "")},
      {"join", plan.identity ? fill(kJoin, {{"name", plan.name}}) : ""},
      {"tokens", plan.identity ? ""
                               : fill(kTokens, {{"name", plan.name}}) +
                                     list("worker-", plan.tokens, ".token")},
      {"identity_ca",
       in_cluster ? " \\\n                --identity-ca /starling/cluster/ca.crt" : ""},
      {"ca_mount", in_cluster ? kCaMount : ""},
      {"ca_volume", in_cluster ? kCaVolume : ""},
      {"readme_keys", plan.identity
                          ? fill(kReadmeIdentity, {{"audience", plan.job.identity.audience},
                                                   {"subject", worker_subject(plan)},
                                                   {"issuer", plan.job.identity.issuer}})
                          : "- The files in `keys` let in whoever has them, and are in two "
                            "Secrets.\n"},
      {"pod", kPod},
      {"container", fill(kContainer, {{"image", plan.image}})},
      {"spread", coordinators > 1 ? kSpread : ""},
      {"budget", coordinators > 1 ? fill(kBudget, {{"name", plan.name}}) : ""},
      {"start", code_block(launch.start)},
  };
  for (const auto& [path, text] : {std::pair{"kustomization.yaml", kKustomization},
                                   {"coordinators.yaml", kCoordinators},
                                   {"network.yaml", kNetwork},
                                   {"README.md", kKubernetesReadme}})
    launch.files.push_back({path, fill(text, fields)});
  launch.files.push_back(
      {"workers.yaml", workers_text(plan, fields) +
                           (plan.workers > 1 ? fill(kWorkerBudget, {{"name", plan.name}}) : "")});
  launch.files.push_back({"job.toml", format_job(plan.job)});
  return launch;
}

}  // namespace starling::tools
