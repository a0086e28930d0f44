#pragma once
// These are the loops of every job (kernels/device/jobs.h) over memory that the host can read.

#include "kernels/device/jobs.h"

namespace starling::kernels {

// Threads: any, if they write to disjoint memory.
void run(const AddJob& job);
void run(const GatherJob& job);
void run(const WeighJob& job);
void run(const SumJob& job);
void run(const WideJob& job);
void run(const SquaresJob& job);
void run(const ApplyJob& job);
void run(const PublishJob& job);
void run(const MultipleJob& job);
void run(const DifferenceJob& job);
void run(const NormJob& job);
void run(const LocalStepJob& job);
void run(const ChecksumJob& job);
void run(const DigestJob& job);

}  // namespace starling::kernels
