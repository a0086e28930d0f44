#pragma once
// What metadata services answer, read: pure functions of bytes from outside. What is accepted is
// bounded: texts are printable and short, notices between one second and kNoticeMax.
//
// An answer that is no notice of the service's at all is an error, and is asked for again. A notice of
// which a part cannot be read is heeded, as if that part said the worst: a machine goes for a name or a
// time that somebody spells in another way, too.

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
// Where no time is named, or none that can be read (Azure's events that have begun, AWS's hibernation).
inline constexpr std::chrono::seconds kNoticeUnknown{30};
// GCP names no time. Up to 30 s, and 11 s have been seen.
inline constexpr std::chrono::seconds kGcpPreemption{10};
// "60 s before a maintenance event starts", less what passes between two looks.
inline constexpr std::chrono::seconds kGcpMaintenance{45};
// AWS schedules maintenance weeks ahead: a hint, and a leave from so long before it on.
inline constexpr std::chrono::seconds kAwsMaintenanceLead{600};

// "2026-01-02T08:22:00Z", with a fraction (dropped) or an offset.
std::optional<std::chrono::sys_seconds> parse_rfc3339(std::string_view text);
// "Fri, 02 Jan 2026 08:22:00 GMT", with or without the day of the week.
std::optional<std::chrono::sys_seconds> parse_rfc1123(std::string_view text);

// All of them: kBadInput  not such an answer.

// {"action":"terminate","time":".."}: an action that is not known counts as terminate.
Result<Notice> parse_aws_action(std::string_view body, std::chrono::sys_seconds now);
// {"noticeTime":".."}: a hint.
Result<Notice> parse_aws_rebalance(std::string_view body);
Result<std::string> parse_aws_token(std::string_view body);
// TRUE or FALSE.
Result<bool> parse_gcp_preempted(std::string_view body);
// None: no maintenance is due. A live migration is a hint, any other word a leave.
Result<std::optional<Notice>> parse_gcp_maintenance(std::string_view body);
// The name of this machine, as Resources has it but for the case of its letters.
Result<std::string> parse_azure_name(std::string_view body);

struct MachineEvent {
  std::string id;  // empty: none that can be said to the service
  Notice notice;
};
struct MachineEvents {
  std::vector<MachineEvent> events;
  std::size_t unreadable = 0;  // entries of the list that are no events
};
// [{"Code":"system-reboot","NotBefore":"..","EventId":"..","State":"active"}]: those that are to come.
Result<MachineEvents> parse_aws_maintenance(std::string_view body, std::chrono::sys_seconds now);
// Those events whose Resources have this name.
Result<MachineEvents> parse_azure_events(std::string_view body, const std::string& name,
                                         std::chrono::sys_seconds now);

}  // namespace starling::actors
