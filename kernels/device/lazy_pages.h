#pragma once
// Lazy pages are zeroed memory of the host that costs something only where it is touched.
//
// State and totals are indexed by the flat index of core/job/layout.h on every worker, although a
// worker holds only some segments: segments that it does not hold are address space, not memory.

#include <cstddef>
#include <cstdint>
#include <stop_token>

#include "kernels/device/granules.h"

namespace starling::kernels {

constexpr std::size_t kHugePage = 2u << 20;

// Takes anonymous memory from the kernel, huge pages advised from 2 MiB on. Starts as zeros, at
// a page's boundary. These are functions of the range, as its owner keeps the address alone.
std::byte* take_pages(std::size_t bytes);  // throws std::bad_alloc as the standard containers do
void give_back_pages(std::byte* at, std::size_t bytes);
// See Memory::expect(): huge pages within the range, and nowhere else where it overlaps one.
void expect_pages(std::byte* at, std::size_t offset, std::size_t count, bool used);
// See Memory::prepare() and Memory::release(); without effect before Linux 5.14.
void prepare_pages(std::byte* at, std::size_t offset, std::size_t count,
                   const std::stop_token& stop);
std::size_t page_bytes();
// Make whole private pages zeros that cost no memory, and let the process use them or not.
void drop_pages(std::byte* at, Granules::Run run);
void protect_pages(std::byte* at, Granules::Run run, bool there);
enum class Pages : std::uint8_t { kPrivate, kShared };  // shared: of kernels/device/shared_pages.h
void release_pages(std::byte* at, std::size_t offset, std::size_t count,
                   Pages pages = Pages::kPrivate);

}  // namespace starling::kernels
