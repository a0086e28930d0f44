#pragma once
// Bugs breaks the protocol on purpose, one rule at a time, for tests that show that the simulator
// notices. In the shipped build no switch can be set (elastic/planted.h).

#include "elastic/planted.h"

namespace starling::elastic {

struct Bugs {
  Planted r1_accept_other_epochs{};  // frames of a left epoch reach the worker
  Planted r4_vote_without_totals{};  // votes before its totals are accepted
  Planted recheck_unawaited{};    // votes while a pass reads parameters for a second contribution
  Planted r5_pass_without_all{};  // passes with one vote missing
  Planted r6_apply_at_vote{};     // applies when it votes
  Planted r7_clear_at_vote{};     // clears the accumulators when it votes
  Planted r8_forget_work{};       // keeps and reports nothing of the step in flight
  Planted r9_keep_sending{};      // reports without stopping the epoch
  Planted r9_enter_below_promise{};   // enters plans below its promise
  Planted r10_ignore_predecessor{};   // a plan is valid whatever its predecessor
  Planted r10_form_early{};           // a leader forms before an entry of its term is applied
  Planted r11_any_report{};           // reports count whatever their promise
  Planted r11_any_member{};           // reports of non-members count too
  Planted r11_no_fence{};             // forms without a member of every epoch that may run
  Planted r11_revive_leaver{};        // a leaver takes the place of a lost epoch without it
  Planted r11_leaver_voted{};         // a leaver fences the last epoch though its vote agreed to it
  Planted r12_never_finish{};         // base is V even if all are pending for V
  Planted r12_always_finish{};        // base is V+1 if any is pending for V
  Planted r13_any_owner{};            // owners follow placement, current copy or not
  Planted r14_vote_without_move{};    // a move's target votes before the state is there
  Planted r15_switch_early{};         // switches when it is ready itself
  Planted r16_obey_proposals{};       // leader sends plans before they are committed
  Planted r17_some_votes{};           // takes a step's way from all votes but its own
  Planted r19_prepared_rate{};        // a plan that stops nobody changes the rate
  Planted r19_rate_of_told{};         // steps that are done again have another rate
  Planted prepared_holders_moving{};  // counts a move under way as a copy in a prepared plan
  Planted standstill_unseen{};        // a heard worker is waited for, whether it gets on or not
  Planted share_overlap{};            // deals a member's kept micro-batches to others again
  Planted shares_by_some_votes{};     // deals the next step without what its own vote says
  Planted shares_not_of_plan{};       // a worker that switches deals its first step equally
  Planted contributors_of_plan{};     // awaits sums of all others, also of those without a share
  Planted scale_of_start{};           // a worker that enters scales the loss as at the start
  Planted leave_unacknowledged{};     // goes with steps that no coordinator has noted
  Planted stop_by_leader{};           // goes on after a skipped step that ends the job
};

}  // namespace starling::elastic
