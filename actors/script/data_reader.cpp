#include "actors/script/data_reader.h"

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "actors/script/requests.h"
#include "core/base/bytes.h"
#include "core/base/hash.h"

namespace starling::actors::script {

using Clock = std::chrono::steady_clock;

void DataReader::begin_with(std::uint32_t sequences) {
  const std::uint64_t size = std::max(1u, sequences);
  const MutexLock lock(mutex_);
  sequences_ = sequences;
  reading_.emplace((samples_ + size - 1) / size);
}

std::shared_ptr<Reading::Process> DataReader::begin() {
  const MutexLock lock(mutex_);
  return reading_ ? reading_->begin() : nullptr;
}

DataRead DataReader::read() const {
  const MutexLock lock(mutex_);
  return reading_ && wrong_.empty() ? reading_->told() : DataRead();
}

std::string DataReader::wrong() const {
  const MutexLock lock(mutex_);
  return wrong_;
}

void DataReader::read_on(Processes& processes, Process& process, Clock::duration pass) {
  if (!process.reading) return;
  {
    const MutexLock lock(mutex_);
    reading_->passed(*process.reading, pass);
  }
  while (process.child && read_one(processes, process, /*paced=*/true)) continue;
}

void DataReader::read_rest(Processes& processes, const std::function<bool()>& go_on) {
  {
    const MutexLock lock(mutex_);
    if (!reading_) return;
  }
  std::vector<Process> waiting = processes.take_waiting();
  std::vector<std::future<void>> reading;
  for (Process& process : waiting)
    reading.push_back(std::async(std::launch::async, [this, &processes, &process, &go_on] {
      while (go_on() && process.child && read_one(processes, process, /*paced=*/false)) continue;
      if (process.child) processes.give_back(std::move(process));
    }));
}

std::string DataReader::read_otherwise(std::uint64_t batch) const {
  const std::uint64_t first = batch * sequences_;
  const std::uint64_t last = std::min<std::uint64_t>(first + sequences_, samples_) - 1;
  return "samples " + std::to_string(first) + " to " + std::to_string(last) +
         " are others when they are read again, by the same process or by another one: "
         "the data must not change while a job runs, nor depend on the process; " +
         script_;
}

// Reads one batch; returns false if there is none to read now.
bool DataReader::read_one(Processes& processes, Process& process, bool paced) {
  ByteWriter request;
  std::optional<std::uint64_t> batch;
  {
    const MutexLock lock(mutex_);
    if (wrong_.empty()) batch = reading_->next(*process.reading, paced, Clock::now());
    if (!batch) return false;
    request.put(Ask::kRead);
    request.put(*batch);
  }
  const auto begun = Clock::now();
  const auto reading = process.reading;
  const auto reply = processes.ask(process, std::move(request).take());
  // Empty: the data say what they are, or 256 samples are all. One byte: the Dataset has raised.
  const auto took = Clock::now() - begun;
  const MutexLock lock(mutex_);
  if (process.reading != reading) return false;  // another process has answered
  if (reply && reply.value().empty()) {
    reading_->cannot_be_compared();
  } else if (reply && reply.value().size() == sizeof(Digest)) {
    const auto digest = ByteReader(reply.value()).get<Digest>();
    if (!reading_->read(*reading, *batch, digest, took, paced)) wrong_ = read_otherwise(*batch);
  } else if (!reply && reply.error().code() == Code::kBadInput) {
    wrong_ = reply.error().text();
  } else {
    reading_->failed(*reading, *batch, took, Clock::now(), paced);
  }
  return wrong_.empty();
}

}  // namespace starling::actors::script
