#include "core/observe/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <boost/crc.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/bytes.h"
#include "core/observe/metrics.h"

namespace starling {
namespace {

// Castagnoli's CRC, turned and moved as TFRecord has it, so that a checksum of a checksum is none.
std::uint32_t masked_crc(std::string_view bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xa282ead8u;
}

template <class T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A message of protocol buffers; its fields are numbered as in TensorFlow's event.proto and summary.proto.
class Fields {
 public:
  Fields& number(std::uint32_t field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  Fields& real(std::uint32_t field, double value) {
    varint(field << 3 | 1);
    append(bytes_, value);
    return *this;
  }
  Fields& single(std::uint32_t field, float value) {
    varint(field << 3 | 5);
    append(bytes_, value);
    return *this;
  }
  Fields& text(std::uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

constexpr std::uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr std::uint32_t kStatus = 1, kStart = 1;                 // of a SessionLog
constexpr std::uint32_t kValue = 1, kTag = 1, kSimpleValue = 2;  // of a Summary and its values

std::vector<std::string> metrics_of(const Job& job) {
  const auto* const python = std::get_if<PythonSpec>(&job.model);
  return python != nullptr ? python->metrics : std::vector<std::string>();
}

bool has_tokens(const Job& job) {
  const auto input = input_of(job.model);
  return input && input->tokens();
}

}  // namespace

std::string tensorboard_record(std::string_view event) {
  std::string record;
  append(record, std::uint64_t{event.size()});
  append(record, masked_crc(record));
  record += event;
  append(record, masked_crc(event));
  return record;
}

Result<std::unique_ptr<TensorboardSink>> TensorboardSink::make(const Job& job,
                                                               const std::string& folder,
                                                               bool begins) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return bad_input("cannot make " + folder + ": " + error.message());
  for (std::filesystem::directory_iterator entry(folder, error), end;
       begins && !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with("events.out.tfevents."))
      return bad_input(
          "has curves of another run, which TensorBoard would forget, expected a new folder; " +
          folder);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  // TensorBoard reads the files of a folder in the order of their names.
  char time[64];
  std::snprintf(time, sizeof time, "%.6f", unix_time());
  const std::string path = folder + "/events.out.tfevents." + time + "." + host + "." +
                           std::to_string(::getpid()) + ".starling";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return bad_input("cannot write " + path + ": " + std::strerror(errno));
  return std::unique_ptr<TensorboardSink>(new TensorboardSink(job, fd));
}

// What is dropped, as the disk takes nothing, leaves no mark: points of a curve are missing then.
TensorboardSink::TensorboardSink(const Job& job, int fd)
    : has_tokens_(has_tokens(job)),
      metrics_(metrics_of(job)),
      file_(fd, [](std::uint64_t) { return std::string(); }) {
  file_.put(tensorboard_record(
                Fields().real(kWallTime, unix_time()).text(kFileVersion, "brain.Event:2").bytes()),
            /*minor=*/false);
}

void TensorboardSink::on(const Event& event) {
  if (const auto* step = std::get_if<event::StepPassed>(&event)) add(*step);
  if (const auto* evaluated = std::get_if<event::Evaluated>(&event)) add(*evaluated);
  if (const auto* restart = std::get_if<event::Restarted>(&event)) begin_at(restart->version);
}

void TensorboardSink::begin_at(Version version) {
  next_ = next_evaluation_ = version;
  file_.put(tensorboard_record(Fields()
                                   .real(kWallTime, unix_time())
                                   .number(kStep, version.value())
                                   .text(kSessionLog, Fields().number(kStatus, kStart).bytes())
                                   .bytes()),
            /*minor=*/false);
}

void TensorboardSink::add(const event::StepPassed& step) {
  const StepRecord& record = step.record;
  if (!next_) begin_at(record.version);
  if (record.version < *next_) return;  // told before by a coordinator that led
  next_ = record.version + 1;
  std::vector<Scalar> scalars{{"loss", record.loss},
                              {"norm", record.norm},
                              {"workers", static_cast<double>(step.world)},
                              {"ms", step.ms}};
  if (step.rate) scalars.push_back({"rate", *step.rate});
  for (std::size_t i = 0; i < std::min(metrics_.size(), record.metrics.size()); ++i)
    scalars.push_back({metrics_[i], record.metrics[i]});
  put(record.version, scalars);
}

void TensorboardSink::add(const event::Evaluated& evaluated) {
  if (!next_evaluation_) begin_at(evaluated.version);
  if (evaluated.version < *next_evaluation_) return;
  next_evaluation_ = evaluated.version + 1;
  std::vector<Scalar> scalars{{"validation.loss", evaluated.loss}};
  for (std::size_t i = 0; i < std::min(metrics_.size(), evaluated.metrics.size()); ++i)
    scalars.push_back({"validation." + metrics_[i], evaluated.metrics[i]});
  if (has_tokens_) scalars.push_back({"validation.perplexity", std::exp(evaluated.loss)});
  put(evaluated.version, scalars);
}

void TensorboardSink::put(Version version, const std::vector<Scalar>& scalars) {
  Fields summary;
  for (const Scalar& scalar : scalars)
    summary.text(kValue, Fields()
                             .text(kTag, scalar.tag)
                             .single(kSimpleValue, static_cast<float>(scalar.value))
                             .bytes());
  file_.put(tensorboard_record(Fields()
                                   .real(kWallTime, unix_time())
                                   .number(kStep, version.value())
                                   .text(kSummary, summary.bytes())
                                   .bytes()),
            /*minor=*/true);
}

}  // namespace starling
