// A coordinator's log on a thread of its own.

#include "actors/coordinator/journal.h"

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>

namespace starling::actors {
namespace {

// Zeros that a test may make hang or fail. Shared with the test, as the log owns its file.
struct Disk {
  std::promise<void> go_on;
  std::shared_future<void> gone_on = go_on.get_future().share();
  std::atomic<bool> hangs{false}, fails{false};
};

class File : public RaftLogFile {
 public:
  explicit File(std::shared_ptr<Disk> disk) : disk_(std::move(disk)) {}
  std::string name() const override { return "a file"; }
  Result<Bytes> read() override { return Bytes{}; }
  Result<> write(std::uint64_t, ByteView) override { return ok(); }
  Result<> sync() override {
    if (disk_->hangs) disk_->gone_on.wait();
    if (disk_->fails) return Error(Code::kUnavailable, "no space");
    return ok();
  }
  Result<> resize(std::uint64_t) override { return ok(); }
  Result<> keep_aside(ByteView) override { return ok(); }
  Result<> replace(ByteView) override { return sync(); }
  Result<> check() override { return ok(); }
  Result<> write_mark(ByteView) override { return ok(); }
  Bytes read_mark() override { return {}; }

 private:
  std::shared_ptr<Disk> disk_;
};

elastic::coordinator_command::Persist entry(std::uint64_t index) {
  elastic::coordinator_command::Persist order;
  if (index == 1) order.hard_state = elastic::HardState{1, 0};
  order.append.push_back({index, 1, {}});
  return order;
}

struct JournalRig {
  JournalRig() {
    auto log = RaftLog::open_on(std::make_unique<File>(disk), JobId{}, 0).value();
    journal = std::make_unique<Journal>(std::move(log), [this](Result<> saved) {
      const std::lock_guard lock(mutex);
      answers.push_back(saved ? "" : saved.error().text());
      changed.notify_all();
    });
  }
  std::string answer(std::size_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return answers.size() >= number; });
    return answers[number - 1];
  }

  std::shared_ptr<Disk> disk = std::make_shared<Disk>();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> answers;
  std::unique_ptr<Journal> journal;
};

TEST_CASE("journal: it answers when what was asked for is on the disk, or cannot be") {
  JournalRig rig;
  rig.journal->save(entry(1));
  CHECK(rig.answer(1).empty());
  rig.disk->fails = true;
  rig.journal->save(entry(2));
  CHECK(rig.answer(2) == "no space");
}

TEST_CASE("journal: a disk that hangs holds up neither who asks nor the end") {
  JournalRig rig;
  rig.disk->hangs = true;
  rig.journal->save(entry(1));
  rig.journal.reset();
  const std::lock_guard lock(rig.mutex);
  CHECK(rig.answers.empty());
  rig.disk->go_on.set_value();
}

}  // namespace
}  // namespace starling::actors
