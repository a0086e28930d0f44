// This is the host as a device: jobs run at once, in the calling thread.

#include <cstring>

#include "kernels/device/device.h"
#include "kernels/device/host_jobs.h"
#include "kernels/device/lazy_pages.h"

namespace starling::kernels {
namespace {

class HostQueue : public Queue {
 public:
  void zero(void* at, std::size_t bytes) override { std::memset(at, 0, bytes); }
  void copy_in(void* to, ByteView from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  void copy_out(std::span<std::uint8_t> to, const void* from) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void add(const AddJob& job) override { run(job); }
  void gather(const GatherJob& job) override { run(job); }
  void weigh(const WeighJob& job) override { run(job); }
  void sum(const SumJob& job) override { run(job); }
  void wide_means(const WideJob& job) override { run(job); }
  void squares(const SquaresJob& job) override { run(job); }
  void apply(const ApplyJob& job) override { run(job); }
  void publish(const PublishJob& job) override { run(job); }
  void multiple(const MultipleJob& job) override { run(job); }
  void difference(const DifferenceJob& job) override { run(job); }
  void norm(const NormJob& job) override { run(job); }
  void local_step(const LocalStepJob& job) override { run(job); }
  void checksum(const ChecksumJob& job) override { run(job); }
  void digest(const DigestJob& job) override { run(job); }
  void wait() override {}
};

class HostStream : public Stream {
 public:
  bool idle() override { return true; }
  void* native() const override { return nullptr; }
};

class HostDevice : public Device {
 public:
  const std::string& name() const override { return name_; }
  bool host_memory() const override { return true; }
  std::unique_ptr<Queue> make_queue() override { return std::make_unique<HostQueue>(); }
  std::shared_ptr<Stream> make_stream() override { return std::make_shared<HostStream>(); }

 protected:
  std::byte* take(std::size_t bytes, bool) override { return take_pages(bytes); }
  void give_back(std::byte* at, std::size_t bytes) override { give_back_pages(at, bytes); }
  void expect(std::byte* at, std::size_t offset, std::size_t count, bool used) override {
    expect_pages(at, offset, count, used);
  }
  void prepare(std::byte* at, std::size_t offset, std::size_t count,
               const std::stop_token& stop) override {
    prepare_pages(at, offset, count, stop);
  }
  void release(std::byte* at, std::size_t offset, std::size_t count) override {
    release_pages(at, offset, count);
  }

 private:
  const std::string name_ = "host";
};

class SharingHost : public HostDevice {
 protected:
  bool shares() const override { return true; }
};

}  // namespace

Device& host_device() {
  static HostDevice host;
  return host;
}

std::shared_ptr<Device> make_sharing_host() {
  return std::make_shared<SharingHost>();
}

}  // namespace starling::kernels
