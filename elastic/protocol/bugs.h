#pragma once
// The protocol broken on purpose, one rule at a time, for tests that show that the simulator
// notices. Production leaves every switch off.

namespace starling::elastic {

struct Bugs {
  bool r1_accept_other_epochs = false;   // frames of a left epoch reach the worker
  bool r4_vote_without_totals = false;   // votes before its totals are accepted
  bool r5_pass_without_all = false;      // passes with one vote missing
  bool r6_apply_at_vote = false;         // applies when it votes
  bool r7_clear_at_vote = false;         // clears the accumulators when it votes
  bool r8_forget_work = false;           // keeps and reports nothing of the step in flight
  bool r9_keep_sending = false;          // reports without stopping the epoch
  bool r9_enter_below_promise = false;   // enters plans below its promise
  bool r10_ignore_predecessor = false;   // a plan is valid whatever its predecessor
  bool r10_form_early = false;           // a leader forms before an entry of its term is applied
  bool r11_any_report = false;           // reports count whatever their promise
  bool r11_any_member = false;           // reports count whoever sent them
  bool r11_no_fence = false;             // forms without a member of every epoch that may run
  bool r11_revive_leaver = false;        // who left takes the place of a lost epoch without it
  bool r12_never_finish = false;         // base is V even if all are pending for V
  bool r12_always_finish = false;        // base is V+1 if any is pending for V
  bool r13_any_owner = false;            // owners follow placement, current copy or not
  bool r14_vote_without_move = false;    // a move's target votes before the state is there
  bool r15_switch_early = false;         // switches when it is ready itself
  bool r16_obey_proposals = false;       // leader sends plans before they are committed
  bool prepared_holders_moving = false;  // counts a move under way as a copy in a prepared plan
  bool share_overlap = false;            // deals a member's kept micro-batches to others again
  bool shares_by_some_votes = false;     // deals the next step without what its own vote says
  bool shares_not_of_plan = false;       // who switches deals its first step equally
};

}  // namespace starling::elastic
