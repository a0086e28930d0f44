#pragma once
// The devices on which tests of the grid run. tests/cuda/include has a file of this name with one more.

#include "tests/kernels/plain_devices.h"

#define STARLING_DEVICES OnHost, OnEmulated
