// `starling admin` steers a run: it asks the coordinator that leads, under the key of an admin.

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "actors/gateway/gateway.h"
#include "actors/worker/ask.h"
#include "core/base/address.h"
#include "core/base/join_token.h"
#include "core/base/mac.h"
#include "core/base/system_error.h"
#include "core/job/rate_change.h"
#include "core/job/words.h"
#include "core/observe/event.h"
#include "core/observe/run_status.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/group.h"
#include "tools/starling/last_answer.h"
#include "tools/starling/run_place.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAgain{200};
constexpr std::chrono::seconds kNobodyLeads{30};
// Leads the answer of a coordinator whose job has ended.
constexpr const char* kOver = "the run is over";
// Coordinators end with their job, so the answer that it is over may not come.
constexpr std::chrono::seconds kEndedSilently{3};

// What an admin's command line means.
struct AdminCall {
  AdminAction action = AdminAction::kDrain;
  std::string worker;
  double peak_rate = 0;
  std::string where;
};

// Errors: kBadInput  no number that a job file may have there.
Result<double> peak_rate_of(const std::string& text) {
  double rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error == std::errc() && end == text.data() + text.size() && is_peak_rate(rate)) return rate;
  return bad_input("admin rate expects a number above 0, at most " +
                   job_words::number_text(kPeakRateMax) + ", and then the run, is \"" + text +
                   "\"");
}

Result<AdminCall> call_of(const AdminCommand& command) {
  AdminCall call;
  for (const AdminAction action :
       {AdminAction::kDrain, AdminAction::kEvict, AdminAction::kCheckpoint, AdminAction::kStop,
        AdminAction::kRate})
    if (command.action == to_string(action)) call.action = action;
  const bool names = call.action == AdminAction::kDrain || call.action == AdminAction::kEvict;
  const bool changes_rate = call.action == AdminAction::kRate;
  if (command.words.size() != (names || changes_rate ? 2 : 1))
    return bad_input("admin " + command.action + " expects " +
                     (names          ? "the name of a worker and "
                      : changes_rate ? "a peak rate and "
                                     : "") +
                     "the run: its folder, or the addresses of its coordinators");
  if (names) call.worker = command.words.front();
  if (changes_rate) {
    STARLING_TRY(rate, peak_rate_of(command.words.front()));
    call.peak_rate = rate;
  }
  if (std::error_code error; names && role_of(command.words.back()) == Role::kWorker &&
                             !std::filesystem::exists(command.words.back(), error))
    return bad_input("the name of the worker comes first, then the run");
  if (command.now && call.action != AdminAction::kStop)
    return bad_input("--now belongs to admin stop");
  call.where = command.words.back();
  return call;
}

// The coordinators of a run, and a key for them.
struct RunContact {
  KeyRing ring;
  KeyPair key;
  std::vector<actors::GatewayOptions::Server> group;
};

// Where the admin's key is, in a folder of split keys or one file; `name` may be empty.
Result<KeyPair> key_of(const KeyRing& ring, const std::string& name, const std::string& keys) {
  const KeyPair* found = nullptr;
  for (const KeyPair& pair : ring.pairs()) {
    const bool meant = name.empty() ? role_of(pair.name) == Role::kAdmin : pair.name == name;
    if (meant && !pair.secret_key.empty() && (!found || pair.name == "admin")) found = &pair;
  }
  if (found) return *found;
  return bad_input("the secret of " + (name.empty() ? std::string("an admin") : name) +
                   " is not in " + keys +
                   "; starling keys --add admin-NAME --keys FOLDER makes one");
}

Result<RunContact> contact_of(const AdminCommand& command, const std::string& where) {
  if (is_join_token(where))
    return bad_input(
        "a join token is a worker's, expected the folder of a run, or the addresses of its "
        "coordinators");
  if (!command.name.empty() && role_of(command.name) != Role::kAdmin)
    return bad_input("--name expects the key of an admin, admin or admin-NAME, is " + command.name);
  RunPlace run{where, command.keys};
  std::error_code error;
  if (std::filesystem::is_directory(where, error)) {
    if (const std::string end = end_of_run(where); !end.empty())
      return bad_input("the run in " + where + " is over: " + end);
    STARLING_TRY(place, place_of_run(where, command.keys));
    run = std::move(place);
  } else if (auto checked = parse_addresses(where); !checked) {
    return bad_input(where +
                     " is neither the folder of a run nor addresses of coordinators, host:port");
  }
  if (run.keys.empty()) return bad_input("--keys is needed beside addresses");
  const bool folder = std::filesystem::is_directory(run.keys, error);
  const std::string name = !command.name.empty() ? command.name : folder ? "admin" : "";
  STARLING_TRY(ring, KeyRing::load_for(run.keys, name));
  STARLING_TRY(key, key_of(ring, name, run.keys));
  STARLING_TRY(group, coordinators_at(ring, run.addresses));
  return RunContact{std::move(ring), std::move(key), std::move(group)};
}

// Asks until the action is done or refused.
class Admin {
 public:
  static Result<Admin> make(const AdminCommand& command, RunContact contact, std::string folder) {
    Admin admin(Clock::now() + std::chrono::seconds(command.wait_s), command.wait_s);
    admin.folder_ = std::move(folder);
    actors::GatewayOptions options;
    options.job = job_id_of(contact.ring);
    options.self = Incarnation{0, fresh_nonce()};
    options.key = contact.key;
    admin.ask_.key = std::move(contact.key);
    admin.ask_.coordinators = contact.group;
    options.servers = std::move(contact.group);
    options.follows_seats = true;
    STARLING_TRY(gateway, actors::Gateway::start(std::move(options), admin.answers_->handler()));
    admin.gateway_ = std::move(gateway);
    return admin;
  }

  // Returns the last answer: kDone or kRefused. Errors: kUnavailable  nobody leads, or time is up.
  Result<AdminAnswered> ask(AdminAction action, const std::string& worker, double peak_rate = 0) {
    AdminAsked asked{action, worker, 0, peak_rate};
    bool obeyed = false;
    auto heard = Clock::now();
    for (;;) {
      gateway_->broadcast_to_servers(asked);
      std::this_thread::sleep_for(kAgain);
      const auto now = Clock::now();
      if (const auto answer = answers_->take(); answer && answer->action == action) {
        if (answer->state != AdminState::kUnderWay) return *answer;
        obeyed = true;
        asked.mark = answer->mark;
        heard = now;
      }
      if (obeyed && action == AdminAction::kStop && now - heard >= kEndedSilently)
        return AdminAnswered{action, AdminState::kDone, asked.mark,
                             "the run is over: its coordinators have ended"};
      if (now - heard >= kNobodyLeads || now >= until_) {
        // At the end alone, as a key may have been added just now.
        if (const std::string why = turned_away(); !why.empty()) return bad_input(why);
      }
      if (const std::string end = obeyed && !folder_.empty() && now - heard >= kEndedSilently
                                      ? end_of_run(folder_)
                                      : "";
          !end.empty())
        return Error(Code::kUnavailable, "the run ended before it answered (" + end +
                                             "); its events say what was done: " + folder_);
      if (now - heard >= kNobodyLeads) return Error(Code::kUnavailable, no_leader(kNobodyLeads));
      if (now >= until_)
        return Error(Code::kUnavailable,
                     std::string(to_string(action)) + (worker.empty() ? "" : " of " + worker) +
                         (obeyed ? " is not done" : " is not begun") + " after " +
                         std::to_string(wait_s_) + " s" + (obeyed ? "; it goes on" : ""));
    }
  }

 private:
  // Says why no coordinator lets this key in; empty: one does, or none can be reached.
  std::string turned_away() const {
    std::vector<actors::LinkState> links;
    for (std::size_t i = 0; i < ask_.coordinators.size(); ++i) links.push_back(gateway_->link(i));
    return actors::hopeless(links, ask_, /*settled=*/true);
  }

  Admin(Clock::time_point until, std::uint32_t wait_s) : until_(until), wait_s_(wait_s) {}

  Clock::time_point until_;
  std::string folder_;      // of the run; empty: addresses were given
  actors::AskOptions ask_;  // its key and the coordinators
  std::uint32_t wait_s_;
  // The gateway's thread gives answers to it, and ends before.
  std::unique_ptr<LastAnswer<AdminAnswered>> answers_ =
      std::make_unique<LastAnswer<AdminAnswered>>();
  std::unique_ptr<actors::Gateway> gateway_;
};

Result<int> steer(const AdminCommand& command) {
  STARLING_TRY(call, call_of(command));
  std::error_code no_folder;
  const std::string folder =
      std::filesystem::is_directory(call.where, no_folder) ? call.where : std::string();
  if (call.action == AdminAction::kStop && !folder.empty())
    if (const std::string end = end_of_run(folder); !end.empty()) {
      std::printf("%s: %s\n", kOver, on_one_line(end).c_str());
      return 0;
    }
  STARLING_TRY(contact, contact_of(command, call.where));
  STARLING_TRY(admin, Admin::make(command, std::move(contact), folder));
  if (call.action == AdminAction::kStop && !command.now) {
    auto kept = admin.ask(AdminAction::kCheckpoint, {});
    const bool failed =
        kept && kept.value().state == AdminState::kRefused && kept.value().mark != 0;
    if (!kept || failed)
      return Error(kept ? Code::kUnavailable : kept.error().code(),
                   "the run is not stopped: " + (kept ? kept.value().text : kept.error().text()) +
                       "; --now stops it without a checkpoint");
    if (!kept.value().text.starts_with(kOver))
      std::printf("%s%s\n", kept.value().state == AdminState::kRefused ? "no checkpoint: " : "",
                  on_one_line(kept.value().text).c_str());
  }
  STARLING_TRY(answer, admin.ask(call.action, call.worker, call.peak_rate));
  if (answer.state == AdminState::kRefused) return Error(Code::kBadInput, on_one_line(answer.text));
  std::printf("%s\n", on_one_line(answer.text).c_str());
  return 0;
}

}  // namespace

int admin(const AdminCommand& command) {
  auto code = steer(command);
  return code ? code.value() : fail(code.error());
}

}  // namespace starling::tools
