// Starling inside another program: its own CAF system and its own model; one coordinator, two
// workers and a data loader as actors, followed through messages.
#include <caf/all.hpp>
#include <filesystem>
#include <iostream>
#include <numeric>

#include "actors/coordinator/coordinator.h"
#include "actors/system.h"
#include "actors/worker/loader.h"
#include "actors/worker/worker.h"
#include "core/base/mac.h"
#include "core/base/philox.h"
#include "core/base/standard_streams.h"

using namespace starling;
// y = w . x, mean squared error: any model that can give a gradient will do.
class Line : public kernels::Model {
 public:
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  Result<> initialise(std::uint64_t, const Layout&, std::span<float> parameters) const override {
    std::fill(parameters.begin(), parameters.end(), 0.0f);
    return ok();
  }
  Result<kernels::MicroBatchResult> forward_backward(std::span<const float> w, const Batch& batch,
                                                     kernels::Workspace&,
                                                     std::span<float> gradient) const override {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    double loss = 0;
    for (std::uint32_t i = 0; i < batch.sequences; ++i) {
      const float* x = &batch.x[i * kInputs];
      const float error = std::inner_product(x, x + kInputs, w.begin(), -float(batch.targets[i]));
      loss += double(error) * error / batch.sequences;
      for (std::size_t k = 0; k < kInputs; ++k)
        gradient[k] += 2 * error * x[k] / float(batch.sequences);
    }
    return kernels::MicroBatchResult{loss, batch.sequences, true};
  }
  static constexpr std::size_t kInputs = 8;

 private:
  std::vector<TensorSpec> tensors_{{"w", {kInputs}}};
};

Result<Batch> make_batch(std::uint64_t step, MicroBatch m) {  // the target is the inputs' sum
  Batch batch{{}, std::vector<std::int32_t>(4), {}, 4};
  for (std::uint32_t i = 0; i < 4 * Line::kInputs; ++i) {
    batch.x.push_back(float(random4(1, Purpose::kSyntheticData, step, m, i)[0] % 8));
    batch.targets[i / Line::kInputs] += std::int32_t(batch.x.back());
  }
  return batch;
}

int main() {
  open_closed_streams();
  Job job;
  job.steps = 100;
  job.optimizer.peak_rate = 0.1;
  auto setup = actors::set_up(job, std::make_shared<Line>(), make_batch, Digest{});
  const KeyRing ring = KeyRing::generate(/*coordinators=*/1, /*workers=*/2);
  auto config = actors::make_system_config();
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  actors::CoordinatorOptions group;
  group.job = job;
  group.layout = setup.value()->layout;
  random_bytes(group.job_id);
  group.key = *ring.find("coordinator-0");
  group.allowed = ring.allow_list();
  group.state_dir = std::filesystem::temp_directory_path() / ("embed-" + to_string(group.job_id));
  group.first_start = true;
  group.wanted_workers = 2;
  auto coordinator = actors::spawn_coordinator(system, group);
  if (!coordinator) return std::cerr << coordinator.error().text() << "\n", 2;
  self->send(coordinator.value().actor, actors::follow_atom_v, caf::actor(self));
  auto loader = actors::spawn_loader(system, make_batch);
  for (std::uint64_t i = 0; i < 2; ++i) {
    actors::WorkerOptions options;
    options.setup = setup.value();
    options.job_id = group.job_id;
    options.self.nonce = Nonce(i + 1);
    options.key = *ring.find("worker-" + std::to_string(i));
    options.coordinators = {coordinator.value().server};
    auto worker = actors::spawn_worker(system, options, loader, caf::actor(self));
    if (!worker) return std::cerr << worker.error().text() << "\n", 2;
  }
  int code = 0;
  for (int workers = 2; workers > 0;)
    self->receive(
        [&](const actors::Observed& seen) {
          const auto* step = std::get_if<event::StepPassed>(&seen->event);  // each worker tells it
          if (step && step->record.version % 20 == 0)
            std::cout << "step " << step->record.version << " loss " << step->record.loss << "\n";
        },
        [&](const actors::WorkerOver& over) {
          --workers;
          code = std::max(code, over.code);
          std::cout << over.reason << ", digest " << to_string(over.digest) << "\n";
        });
  self->send(coordinator.value().actor, actors::stop_atom_v);
  self->send_exit(loader, caf::exit_reason::user_shutdown);
  self->await_all_other_actors_done();
  std::filesystem::remove_all(group.state_dir);
  return code;
}
