// This file is long because processes, their mappings, passes and proofs share the helpers here.
#include "actors/script/python_model.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "actors/script/child.h"
#include "actors/script/reading.h"
#include "actors/script/window.h"
#include "core/base/check.h"
#include "kernels/cpu/table.h"
#include "kernels/device/array.h"
#include "kernels/device/shared_pages.h"
#include "kernels/models/own.h"

namespace starling::actors::script {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kTries = 4;                   // children for one request
constexpr milliseconds kPatienceMin{1500};  // for a pass, once some have been seen,
constexpr int kPatienceFactor = 20;         // and so many times as long as the longest of them took
constexpr std::uint32_t kBridgeVersion = 3;

// Ask is the first byte of a request.
enum class Ask : std::uint8_t {
  kHello = 'h',
  kInitialise = 'i',
  kMap = 'm',
  kPass = 'p',
  kProve = 'v',
  kRead = 'd',
  kForget = 'f'
};
// Answer is the first byte of a reply.
enum class Answer : std::uint8_t { kDone = 0, kRaised = 1 };

// Mapped says which shared places a child maps at the moment.
struct Mapped {
  std::uint64_t parameters = 0, gradient = 0;  // ids of shared places
  std::uint64_t parameters_offset = 0, gradient_offset = 0;
  bool operator==(const Mapped&) const = default;
};

// tools/python/starling/child.py reads this form.
void put_script(ByteWriter& writer, const PythonSpec& spec) {
  const auto put_texts = [&writer](const std::vector<std::string>& texts) {
    writer.put(static_cast<std::uint32_t>(texts.size()));
    for (const std::string& text : texts) writer.put_text(text);
  };
  writer.put_text(spec.module);
  put_texts(spec.arguments);
  put_texts(spec.text);
  writer.put(spec.call);
  writer.put_text(spec.at);
  put_texts(spec.earlier);
  writer.put_text(spec.started);
}

Bytes pass_request(Ask kind, const Batch& batch) {
  ByteWriter request;
  request.put(kind);
  request.put(batch.draw.seed);
  request.put(batch.draw.step);
  request.put(std::uint32_t{batch.draw.micro_batch});
  request.put(std::uint32_t{batch.sequences});
  for (const std::uint64_t sample : batch.samples) request.put(sample);
  return std::move(request).take();
}

// Floats are in the worker's memory, and at `place` for other processes, if these can map them.
template <class Float>
struct Floats {
  std::span<Float> values;
  std::optional<kernels::SharedPlace> place;
};

struct Helper {
  std::unique_ptr<PythonChild> child;
  std::shared_ptr<Reading::Process> reading;  // null: the first batch is not known
  Mapped mapped;
};

class Bridge;

class PythonWorkspace : public kernels::Workspace {
 public:
  PythonWorkspace(const Bridge& bridge, std::uint32_t sequences)
      : Workspace(1, sequences), bridge_(bridge) {}
  ~PythonWorkspace() override;

  Helper helper;
  Window parameters, gradient;

 private:
  const Bridge& bridge_;
};

class Bridge : public PythonModel {
 public:
  Bridge(PythonSpec spec, std::string isa, std::vector<TensorSpec> tensors)
      : spec_(std::move(spec)), isa_(std::move(isa)), tensors_(std::move(tensors)) {}

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  const std::string& isa() const override;
  std::string versions() const override;
  std::unique_ptr<kernels::Workspace> make_workspace(std::uint32_t sequences) const override {
    return std::make_unique<PythonWorkspace>(*this, sequences);
  }
  Result<> initialise(std::uint64_t seed, const Layout& layout,
                      std::span<float> parameters) const override {
    return initialise(seed, layout, parameters, std::nullopt);
  }
  Result<> initialise(std::uint64_t seed, const Layout& layout,
                      kernels::Array<float>& parameters) const override {
    return initialise(seed, layout, parameters.all(), parameters.place());
  }
  Result<kernels::MicroBatchResult> forward_backward(std::span<const float> parameters,
                                                     const Batch& batch,
                                                     kernels::Workspace& workspace,
                                                     std::span<float> gradient) const override {
    return compute({parameters, {}}, batch, workspace, {gradient, {}});
  }
  Result<kernels::MicroBatchResult> pass(const Layout& layout, kernels::PartSource& parameters,
                                         const Batch& batch, kernels::Workspace& workspace,
                                         kernels::GradientSink& gradient) const override;
  void on_child_lost(ChildLost told) override { told_ = std::move(told); }
  void begin_with(const Batch& first) override {
    first_ = first;
    const std::uint64_t size = std::max(1u, first_.sequences);
    reading_.emplace((spec_.samples + size - 1) / size);
  }
  std::uint64_t copied() const override { return copied_; }
  Times times() const override {
    const std::scoped_lock lock(mutex_);
    return times_;
  }

  milliseconds patience() const override { return patience(/*pass=*/true, /*attempt=*/0); }
  Identity identity() const override {
    const std::scoped_lock lock(mutex_);
    return identity_;
  }

  DataRead data_read() const override {
    const std::scoped_lock lock(mutex_);
    return reading_ && wrong_data_.empty() ? reading_->told() : DataRead();
  }

  void read_rest(const std::function<bool()>& go_on) const override;

  Result<> prepare(std::uint32_t processes) const override;
  void give_back(Helper helper) const;

 private:
  Result<> initialise(std::uint64_t seed, const Layout& layout, std::span<float> parameters,
                      const std::optional<kernels::SharedPlace>& place) const;
  Result<kernels::MicroBatchResult> compute(const Floats<const float>& parameters,
                                            const Batch& batch, kernels::Workspace& workspace,
                                            const Floats<float>& gradient) const;
  Result<Helper> helper() const;
  Result<Helper> start() const;
  boost::asio::thread_pool& starter() const;
  Result<> greet(PythonChild& child) const;
  Result<> prove(PythonChild& child) const;
  Error unlike(const std::string& what, const Digest& before, const Digest& now,
               const std::string& rule) const;
  // Asks the helper, or another one if that is lost. `prepare`: what a new one needs first.
  template <class Prepare>
  Result<Bytes> ask(Helper& helper, ByteView request, std::span<const int> files,
                    const Prepare& prepare, bool pass) const;
  Result<Bytes> try_to_ask(PythonChild& child, ByteView request, std::span<const int> files,
                           milliseconds patience) const;
  void read_on(Helper& helper, Clock::duration pass) const;
  std::string wrong_data() const;
  Error read_otherwise(std::uint64_t batch) const;
  bool read_one(Helper& helper, bool paced) const;
  milliseconds patience(bool pass, int attempt) const;
  void took(Clock::duration pass) const;

  const PythonSpec spec_;
  const std::string isa_;
  const std::vector<TensorSpec> tensors_;
  ChildLost told_;
  Batch first_;
  mutable std::unique_ptr<boost::asio::thread_pool> starter_;
  mutable std::atomic<std::uint64_t> copied_ = 0;
  // The longest time that a process took for a pass, of passes that were answered at the first
  // attempt: without lost attempts and without the start of another process. 0: none was seen.
  mutable std::atomic<std::int64_t> longest_ms_ = 0;
  mutable std::mutex mutex_;
  mutable Times times_;
  mutable std::vector<Helper> idle_;
  mutable std::string versions_;  // the first child's, and so all children's, as the next ones
  mutable Identity identity_;
  mutable std::optional<Digest> proof_;     // of the first gradient
  mutable std::optional<Reading> reading_;  // once the first batch is known
  mutable std::string wrong_data_;  // why a sample that was read beside passes is refused; or empty
};

PythonWorkspace::~PythonWorkspace() {
  if (helper.child) bridge_.give_back(std::move(helper));
}

const std::string& Bridge::isa() const {
  static const std::string python = "python";
  return python;
}

std::string Bridge::versions() const {
  const std::scoped_lock lock(mutex_);
  return versions_.empty() ? isa() : versions_;
}

milliseconds Bridge::patience(bool pass, int attempt) const {
  const milliseconds first = std::chrono::seconds(spec_.patience_s);
  const std::int64_t longest = longest_ms_;
  if (!pass || longest == 0) return first;
  // A machine may be busy with other work: the next child is given twice as long.
  return std::min(first,
                  std::max(kPatienceMin, milliseconds(longest * kPatienceFactor)) * (1 << attempt));
}

void Bridge::took(Clock::duration pass) const {
  const auto ms = std::chrono::ceil<milliseconds>(pass).count();
  std::int64_t longest = longest_ms_;
  while (ms > longest && !longest_ms_.compare_exchange_weak(longest, ms)) continue;
}

// Tells an error that the script raised from one of a lost process.
Result<Bytes> Bridge::try_to_ask(PythonChild& child, ByteView request, std::span<const int> files,
                                 milliseconds patience) const {
  STARLING_TRY(reply, child.ask(request, files, patience));
  ByteReader reader(reply);
  const auto answer = reader.get<Answer>();
  if (answer == Answer::kRaised) {
    std::string text = reader.get_text();
    if (reader.good()) return Error(Code::kBadInput, std::move(text));
  }
  if (!reader.good() || answer != Answer::kDone)
    return Error(Code::kUnavailable, "the script's process answered with what is no reply");
  reply.erase(reply.begin());
  return std::move(reply);
}

Result<> Bridge::greet(PythonChild& child) const {
  ByteWriter hello;
  hello.put(Ask::kHello);
  hello.put(kBridgeVersion);
  hello.put(std::uint32_t{kBlock});
  hello.put(first_.draw.seed);
  hello.put(first_.sequences);
  put_script(hello, spec_);
  STARLING_TRY(reply, try_to_ask(child, std::move(hello).take(), {}, patience(false, 0)));
  ByteReader reader(reply);
  const auto samples = reader.get<std::uint64_t>();
  const auto data = reader.get<Digest>();
  std::string versions = reader.get_text();
  const auto count = reader.get<std::uint32_t>();
  std::vector<std::string> tensors;
  for (std::uint32_t i = 0; i < count && reader.good(); ++i) tensors.push_back(reader.get_text());
  if (!reader.good())
    return Error(Code::kUnavailable, "the script's process said what is no greeting");
  const auto differs = [&](const std::string& what, const std::string& here,
                           const std::string& there) {
    return Error(Code::kBadInput, "the script's model is not the job's: " + what + " is " + here +
                                      " here and " + there + " in the job; " + spec_.script);
  };
  std::vector<std::string> wanted;
  for (const TensorSpec& tensor : tensors_) wanted.push_back(tensor_text(tensor));
  if (tensors != wanted && std::ranges::is_permutation(tensors, wanted))
    return Error(Code::kBadInput,
                 "the script's parameters have another order in each process: modules that are "
                 "registered from a set have none, use a list; " +
                     spec_.script);
  for (std::size_t i = 0; i < std::max(tensors.size(), wanted.size()); ++i) {
    const std::string here = i < tensors.size() ? tensors[i] : "not there";
    const std::string there = i < wanted.size() ? wanted[i] : "not there";
    if (here != there) return differs("parameter " + std::to_string(i), here, there);
  }
  if (samples != spec_.samples)
    return differs("the number of samples", std::to_string(samples), std::to_string(spec_.samples));
  const std::scoped_lock lock(mutex_);
  if (versions_.empty()) {
    versions_ = versions;
    identity_.data = data;
  }
  if (versions_ != versions)
    return Error(Code::kBadInput,
                 "the script's process was " + versions_ + " before and is " + versions + " now");
  if (identity_.data != data)
    return unlike("other data", identity_.data, data,
                  "what the script reads, and what it draws before build(), has to be the same in "
                  "every process");
  return ok();
}

// Compares the first gradient, and the modules that computed it, with the first child's.
Result<> Bridge::prove(PythonChild& child) const {
  if (first_.sequences == 0) return ok();
  STARLING_TRY(reply, try_to_ask(child, pass_request(Ask::kProve, first_), {}, patience(false, 0)));
  ByteReader reader(reply);
  const auto gradient = reader.get<Digest>();
  const auto text = reader.get<Digest>();
  if (!reader.good())
    return Error(Code::kUnavailable, "the script's process said what is no proof");
  const std::scoped_lock lock(mutex_);
  if (!proof_) {
    proof_ = gradient;
    identity_.text = text;
  }
  if (identity_.text != text)
    return unlike("other modules, or other texts of them", identity_.text, text,
                  "every process has to run the script as it was when the job began");
  if (*proof_ != gradient)
    return unlike("another first gradient", *proof_, gradient,
                  "what the script reads and draws has to be the same in every process");
  return ok();
}

Error Bridge::unlike(const std::string& what, const Digest& before, const Digest& now,
                     const std::string& rule) const {
  const auto brief = [](const Digest& digest) { return to_string(digest).substr(0, 8); };
  return Error(Code::kBadInput, "a process of the script has " + what +
                                    " than the one before it (" + brief(now) + " and " +
                                    brief(before) + "): " + rule + "; " + spec_.script);
}

Result<Helper> Bridge::helper() const {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      Helper helper = std::move(idle_.back());
      idle_.pop_back();
      return helper;
    }
  }
  return start();
}

// The thread that prepare() needs first starts all processes: a process has
// the priority of the thread that starts it. A pass may run behind other
// threads, and the process that takes the place of a lost one in it must not.
boost::asio::thread_pool& Bridge::starter() const {
  const std::scoped_lock lock(mutex_);
  if (!starter_) starter_ = std::make_unique<boost::asio::thread_pool>(1);
  return *starter_;
}

Result<Helper> Bridge::start() const {
  std::packaged_task<Result<std::unique_ptr<PythonChild>>()> starting(
      [this] { return PythonChild::start(spec_.script, isa_); });
  boost::asio::post(starter(), [&starting] { starting(); });
  STARLING_TRY(child, starting.get_future().get());
  STARLING_TRY(greet(*child));
  STARLING_TRY(prove(*child));
  Helper helper;
  helper.child = std::move(child);
  const std::scoped_lock lock(mutex_);
  if (reading_) helper.reading = reading_->begin();
  return helper;
}

Result<> Bridge::prepare(std::uint32_t processes) const {
  std::size_t there = 0;
  {
    const std::scoped_lock lock(mutex_);
    there = idle_.size();
  }
  std::vector<std::future<Result<Helper>>> starting;
  for (std::size_t i = there; i < processes; ++i)
    starting.push_back(std::async(std::launch::async, [this] { return start(); }));
  Result<> all = ok();
  for (auto& one : starting) {
    auto started = one.get();
    if (started)
      give_back(std::move(started).value());
    else
      all = std::move(started).error();
  }
  return all;
}

// Has the helper forget what it has mapped, so that this memory may go, and keeps it for later.
void Bridge::give_back(Helper helper) const {
  const std::uint8_t forget = static_cast<std::uint8_t>(Ask::kForget);
  if (!try_to_ask(*helper.child, {&forget, 1}, {}, kPatienceMin)) return;
  helper.mapped = {};
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(helper));
}

template <class Prepare>
Result<Bytes> Bridge::ask(Helper& helper, ByteView request, std::span<const int> files,
                          const Prepare& prepare, bool pass) const {
  std::string why;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto once = [&]() -> Result<Bytes> {
      if (!helper.child) {
        STARLING_TRY(other, this->helper());
        helper = std::move(other);
      }
      STARLING_TRY(prepare(helper));
      const auto begun = Clock::now();
      auto reply = try_to_ask(*helper.child, request, files, patience(pass, attempt));
      if (reply && pass && attempt == 0) took(Clock::now() - begun);
      return reply;
    };
    auto reply = once();
    if (reply || reply.error().code() == Code::kBadInput) return reply;
    why = reply.error().text();
    helper = {};
    if (told_) told_(why);
  }
  return Error(Code::kUnavailable, "the script's process was lost " + std::to_string(kTries) +
                                       " times in a row: " + why + "; " + spec_.script);
}

Result<> Bridge::initialise(std::uint64_t seed, const Layout& layout, std::span<float> parameters,
                            const std::optional<kernels::SharedPlace>& its_place) const {
  STARLING_CHECK(parameters.size() == layout.elements());
  Window window;
  const kernels::SharedPlace place = window.show(its_place, parameters.size());
  ByteWriter request;
  request.put(Ask::kInitialise);
  request.put(seed);
  request.put(place.offset);
  request.put(std::uint64_t{parameters.size_bytes()});
  const int file = place.file;
  Helper helper;
  STARLING_TRY(ask(
      helper, std::move(request).take(), {&file, 1}, [](Helper&) -> Result<> { return ok(); },
      /*pass=*/false));
  if (!window.here()) {
    std::copy_n(window.own(), parameters.size(), parameters.data());
    copied_ += parameters.size_bytes();
  }
  give_back(std::move(helper));
  return ok();
}

Result<kernels::MicroBatchResult> Bridge::pass(const Layout& layout,
                                               kernels::PartSource& parameters, const Batch& batch,
                                               kernels::Workspace& workspace,
                                               kernels::GradientSink& gradient) const {
  STARLING_CHECK(layout.parts().size() == 1);  // no tensor of a script has a layer
  constexpr PartId kAll = 0;
  const std::size_t floats = layout.elements();
  const std::span from(parameters.acquire(kAll), floats);
  const std::span to(gradient.begin(kAll, 0), floats);
  auto result = compute({from, parameters.parameters_at(kAll)}, batch, workspace,
                        {to, gradient.gradient_at(kAll, 0)});
  parameters.release(kAll);
  if (result) gradient.end(kAll, 0);
  return result;
}

Result<kernels::MicroBatchResult> Bridge::compute(const Floats<const float>& parameters,
                                                  const Batch& batch, kernels::Workspace& workspace,
                                                  const Floats<float>& gradient) const {
  auto& space = static_cast<PythonWorkspace&>(workspace);
  if (batch.samples.size() != batch.sequences)
    return Error(Code::kBadInput, "a batch of " + std::to_string(batch.sequences) +
                                      " samples has " + std::to_string(batch.samples.size()) +
                                      " numbers");
  if (auto wrong = wrong_data(); !wrong.empty()) return Error(Code::kBadInput, std::move(wrong));
  const kernels::SharedPlace from =
      space.parameters.show(parameters.place, parameters.values.size());
  const kernels::SharedPlace to = space.gradient.show(gradient.place, gradient.values.size());
  const Mapped wanted{from.id, to.id, from.offset, to.offset};
  if (!space.parameters.here()) {
    std::ranges::copy(parameters.values, space.parameters.own());
    copied_ += parameters.values.size_bytes();
  }
  const auto map = [&](Helper& helper) -> Result<> {
    if (helper.mapped == wanted) return ok();
    ByteWriter request;
    request.put(Ask::kMap);
    request.put(from.offset);
    request.put(to.offset);
    request.put(std::uint64_t{parameters.values.size_bytes()});
    const int files[] = {from.file, to.file};
    STARLING_TRY(try_to_ask(*helper.child, std::move(request).take(), files, patience(false, 0)));
    helper.mapped = wanted;
    return ok();
  };
  const auto begun = Clock::now();
  STARLING_TRY(reply, ask(space.helper, pass_request(Ask::kPass, batch), {}, map, /*pass=*/true));
  const auto all = Clock::now() - begun;

  ByteReader reader(reply);
  kernels::MicroBatchResult result;
  result.loss = reader.get<double>();
  result.tokens = reader.get<std::uint64_t>();
  const auto script = std::chrono::nanoseconds(reader.get<std::uint64_t>());
  const auto metrics = reader.get<std::uint8_t>();
  for (std::size_t i = 0; i < metrics && reader.good(); ++i)
    result.metrics.push_back(reader.get<double>());
  if (!reader.good() || result.tokens > batch.sequences * std::uint64_t{1 << 20})
    return Error(Code::kUnavailable, "the script's process said what is no loss");
  result.finite = std::isfinite(result.loss);
  {
    const std::scoped_lock lock(mutex_);
    ++times_.passes;
    times_.all += all;
    times_.script += std::min<std::chrono::nanoseconds>(script, all);
  }
  if (!space.gradient.here()) {
    std::copy_n(space.gradient.own(), gradient.values.size(), gradient.values.data());
    copied_ += gradient.values.size_bytes();
  }
  read_on(space.helper, all);
  return result;
}

std::string Bridge::wrong_data() const {
  const std::scoped_lock lock(mutex_);
  return wrong_data_;
}

// Reads batches of the data, as many as passes have taken long enough for.
void Bridge::read_on(Helper& helper, Clock::duration pass) const {
  if (!helper.reading) return;
  {
    const std::scoped_lock lock(mutex_);
    reading_->passed(*helper.reading, pass);
  }
  while (helper.child && read_one(helper, /*paced=*/true)) continue;
}

void Bridge::read_rest(const std::function<bool()>& go_on) const {
  std::vector<Helper> helpers;
  {
    const std::scoped_lock lock(mutex_);
    if (reading_) helpers = std::exchange(idle_, {});
  }
  std::vector<std::future<void>> reading;
  for (Helper& helper : helpers)
    reading.push_back(std::async(std::launch::async, [this, &helper, &go_on] {
      while (go_on() && helper.child && read_one(helper, /*paced=*/false)) continue;
      if (helper.child) give_back(std::move(helper));
    }));
}

Error Bridge::read_otherwise(std::uint64_t batch) const {
  const std::uint64_t first = batch * first_.sequences;
  const std::uint64_t last = std::min<std::uint64_t>(first + first_.sequences, spec_.samples) - 1;
  return Error(Code::kBadInput,
               "samples " + std::to_string(first) + " to " + std::to_string(last) +
                   " are others when they are read again, by the same process or by another one: "
                   "the data must not change while a job runs, nor depend on the process; " +
                   spec_.script);
}

// Reads one batch; returns false if there is none to read now.
bool Bridge::read_one(Helper& helper, bool paced) const {
  ByteWriter request;
  std::optional<std::uint64_t> batch;
  {
    const std::scoped_lock lock(mutex_);
    if (wrong_data_.empty()) batch = reading_->next(*helper.reading, paced, Clock::now());
    if (!batch) return false;
    request.put(Ask::kRead);
    request.put(*batch);
  }
  const auto begun = Clock::now();
  const auto reading = helper.reading;
  const auto reply = ask(
      helper, std::move(request).take(), {}, [](Helper&) -> Result<> { return ok(); },
      /*pass=*/false);
  // Empty: the data say what they are, or 256 samples are all. One byte: the Dataset has raised.
  const auto took = Clock::now() - begun;
  const std::scoped_lock lock(mutex_);
  if (helper.reading != reading) return false;  // another process has answered
  if (reply && reply.value().empty()) {
    reading_->cannot_be_compared();
  } else if (reply && reply.value().size() == sizeof(Digest)) {
    const auto digest = ByteReader(reply.value()).get<Digest>();
    if (!reading_->read(*reading, *batch, digest, took, paced))
      wrong_data_ = read_otherwise(*batch).text();
  } else if (!reply && reply.error().code() == Code::kBadInput) {
    wrong_data_ = reply.error().text();
  } else {
    reading_->failed(*reading, *batch, took, Clock::now(), paced);
  }
  return wrong_data_.empty();
}

}  // namespace

Result<std::unique_ptr<PythonModel>> make_python_model(const PythonSpec& spec,
                                                       const std::string& isa) {
  STARLING_TRY(kernels, kernels::kernel_table(isa));
  STARLING_TRY(tensors, kernels::tensors_of(spec.tensors));
  if (tensors.empty() || spec.samples == 0)
    return Error(Code::kBadInput, "a script's model needs tensors and samples; [model]");
  return std::unique_ptr<PythonModel>(new Bridge(spec, kernels->isa, std::move(tensors)));
}

}  // namespace starling::actors::script
