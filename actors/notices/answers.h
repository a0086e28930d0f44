#pragma once
// These functions read answers of metadata services: pure functions of bytes from outside. Their
// results are bounded: texts are printable and short, notices between one second and kNoticeMax.
//
// An answer that is no notice of the service at all is an error, and the question is
// repeated. A notice of which a part cannot be read counts, as if that part said the worst:
// the cloud takes the machine away even if a name or a time is spelled in another way.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling::actors {

inline constexpr std::size_t kAnswerBytesMax = 512 * 1024;  // a set of a thousand machines
inline constexpr std::size_t kNoticeTextMax = 200;
// A machine that can still ask is not gone, whatever its clock says of the time that was named.
inline constexpr std::chrono::seconds kNoticePassed{5};
inline constexpr std::chrono::seconds kNoticeMax{24 * 3600};
// The notice where no readable time is given (Azure's events that have begun, AWS's hibernation).
inline constexpr std::chrono::seconds kNoticeUnknown{30};
// GCP gives no time. It takes up to 30 s, and 11 s have been seen.
inline constexpr std::chrono::seconds kGcpPreemption{10};
// GCP: "60 s before a maintenance event starts"; here less what passes between two looks.
inline constexpr std::chrono::seconds kGcpMaintenance{45};
// AWS schedules maintenance weeks ahead: the notice is a hint, and a leave from this long before.
inline constexpr std::chrono::seconds kAwsMaintenanceLead{600};

// Reads "2026-01-02T08:22:00Z", with a fraction (dropped) or an offset.
std::optional<std::chrono::sys_seconds> parse_rfc3339(std::string_view text);
// Reads "Fri, 02 Jan 2026 08:22:00 GMT", with or without the day of the week.
std::optional<std::chrono::sys_seconds> parse_rfc1123(std::string_view text);

// Errors of all parse_ functions below: kBadInput  not such an answer.

// Reads {"action":"terminate","time":".."}: an unknown action counts as terminate.
Result<Notice> parse_aws_action(std::string_view body, std::chrono::sys_seconds now);
// Reads {"noticeTime":".."}: a hint.
Result<Notice> parse_aws_rebalance(std::string_view body);
Result<std::string> parse_aws_token(std::string_view body);
// Reads TRUE or FALSE.
Result<bool> parse_gcp_preempted(std::string_view body);
// Returns none if no maintenance is due. A live migration is a hint, any other word a leave.
Result<std::optional<Notice>> parse_gcp_maintenance(std::string_view body);
// Returns the name of this machine, as Resources has it but for the case of its letters.
Result<std::string> parse_azure_name(std::string_view body);

struct MachineEvent {
  std::string id;  // empty: none that can be sent back to the service
  Notice notice;
};
struct MachineEvents {
  std::vector<MachineEvent> events;
  std::size_t unreadable = 0;  // entries of the list that are no events
};
// Reads the coming ones of [{"Code":"..","NotBefore":"..","EventId":"..","State":"active"}].
Result<MachineEvents> parse_aws_maintenance(std::string_view body, std::chrono::sys_seconds now);
// Returns the events whose Resources have this name.
Result<MachineEvents> parse_azure_events(std::string_view body, const std::string& name,
                                         std::chrono::sys_seconds now);

}  // namespace starling::actors
