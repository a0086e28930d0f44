#pragma once
// What metadata services answer, read: pure functions of bytes from outside. What is accepted is
// bounded: texts are printable and short, notices between one second and kNoticeMax.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling::actors {

inline constexpr std::size_t kAnswerBytesMax = 64 * 1024;
inline constexpr std::size_t kNoticeTextMax = 200;
// A machine that can still ask is not gone, whatever its clock says of the time that was named.
inline constexpr std::chrono::seconds kNoticePassed{5};
inline constexpr std::chrono::seconds kNoticeMax{24 * 3600};
// Where no time is named (Azure's events that have begun, AWS's hibernation).
inline constexpr std::chrono::seconds kNoticeUnknown{30};

// "2026-01-02T08:22:00Z", with a fraction (dropped) or an offset.
std::optional<std::chrono::sys_seconds> parse_rfc3339(std::string_view text);
// "Fri, 02 Jan 2026 08:22:00 GMT".
std::optional<std::chrono::sys_seconds> parse_rfc1123(std::string_view text);

// All of them: kBadInput  not such an answer.

// {"action":"terminate","time":".."}: an action that is not known counts as terminate.
Result<Notice> parse_aws_action(std::string_view body, std::chrono::sys_seconds now);
// {"noticeTime":".."}: a hint.
Result<Notice> parse_aws_rebalance(std::string_view body);
Result<std::string> parse_aws_token(std::string_view body);
// TRUE or FALSE.
Result<bool> parse_gcp_preempted(std::string_view body);
// The name of this machine, as Resources has it.
Result<std::string> parse_azure_name(std::string_view body);

struct AzureEvent {
  std::string id;
  Notice notice;
};
// Those events whose Resources have this name.
Result<std::vector<AzureEvent>> parse_azure_events(std::string_view body, const std::string& name,
                                                   std::chrono::sys_seconds now);

}  // namespace starling::actors
