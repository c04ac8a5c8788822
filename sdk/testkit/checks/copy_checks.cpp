// Copies, batches of copies and fills, byte by byte.
#include <algorithm>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/huge_checks.hpp"
#include "testkit/checks/work_checks.hpp"
#include "testkit/values.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

constexpr uint64_t kSizes[] = {1, 2, 3, 7, 63, 64, 65, 1001, 4096, 65537, (1U << 20U) + 5};
constexpr uint64_t kOffsets[] = {0, 1, 3, 8, 61};

Outcome copy(const Accelerator& accelerator, void* to, const void* from, uint64_t bytes, const Stream& stream) {
  return accelerator.call(&Slots::copy_async, to, from, bytes, stream);
}

std::string sized(const char* what, uint64_t bytes, uint64_t offset) {
  return std::string(what) + " of " + std::to_string(bytes) + " bytes, " + std::to_string(offset) +
         " past the alignment,";
}

void compare(const Bytes& got, const Bytes& wanted, const std::string& what) {
  if (got == wanted) return;
  const auto at = std::mismatch(got.begin(), got.end(), wanted.begin());
  fail(what + " is wrong from byte " + std::to_string(at.first - got.begin()) + " on: " + std::to_string(*at.first) +
       ", not " + std::to_string(*at.second));
}

void within_device(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const uint64_t bytes : kSizes) {
    for (const uint64_t offset : kOffsets) {
      const std::string what = sized("a copy", bytes, offset);
      const Bytes wanted = drawn_bytes(subject.seed, bytes, bytes);
      const Guarded from(accelerator, bytes, offset * 7 % 13);
      const Guarded to(accelerator, bytes, offset);
      from.set(wanted);
      must("copy_async", copy(accelerator, to.at(), from.at(), bytes, stream));
      stream.wait();
      compare(to.get(what), wanted, what);
      compare(from.get(what), wanted, what + " the source of which");
    }
  }
}

/// Through plain and pinned memory of the host and back.
void with_host(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const uint64_t bytes : kSizes) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{3}}) {
      const std::string what = sized("a copy from the host and back", bytes, offset);
      const Bytes wanted = drawn_bytes(subject.seed, bytes + 1, bytes);
      Bytes plain(bytes + 2 * offset, 0xEE);
      const Guarded device(accelerator, bytes, offset);
      const Memory pinned(accelerator, bytes + offset, PLIANT_MEMORY_PINNED);
      must("copy_async", copy(accelerator, device.at(), wanted.data(), bytes, stream));
      must("copy_async", copy(accelerator, pinned.at(offset), device.at(), bytes, stream));
      must("copy_async", copy(accelerator, plain.data() + offset, pinned.at(offset), bytes, stream));
      stream.wait();
      compare(device.get(what), wanted, what);
      const Bytes edge(offset, 0xEE);
      expect(std::equal(edge.begin(), edge.end(), plain.begin()) &&
                 std::equal(edge.begin(), edge.end(), plain.end() - static_cast<std::ptrdiff_t>(offset)),
             what + " changed bytes beside its target");
      const auto first = plain.begin() + static_cast<std::ptrdiff_t>(offset);
      compare({first, first + static_cast<std::ptrdiff_t>(bytes)}, wanted, what);
    }
  }
}

void of_nothing(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  const Guarded to(accelerator, 64);
  const Memory from(accelerator, 64);
  const Bytes before = to.get("nothing");
  void* const none = nullptr;
  must("copy_async of 0 bytes", copy(accelerator, to.at(), from.at(), 0, stream));
  must("copy_async of 0 bytes from NULL to NULL", copy(accelerator, none, none, 0, stream));
  must("copy_batch_async of 0 copies",
       accelerator.call(&Slots::copy_batch_async, static_cast<const pliant_copy*>(nullptr), 0, stream));
  const pliant_copy empty[] = {{nullptr, nullptr, 0}, {to.at(), from.at(), 0}};
  must("copy_batch_async of empty copies",
       accelerator.call(&Slots::copy_batch_async, static_cast<const pliant_copy*>(empty), 2, stream));
  stream.wait();
  compare(to.get("a copy of 0 bytes"), before, "the target of a copy of 0 bytes");
}

void batch(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  constexpr uint64_t kCopies = 500;
  const Bytes wanted = drawn_bytes(subject.seed, 3, kCopies * 40);
  const Guarded from(accelerator, wanted.size());
  const Guarded to(accelerator, wanted.size());
  from.set(wanted);
  std::vector<pliant_copy> copies;
  uint64_t at = 0;
  for (uint64_t i = 0; at < wanted.size(); ++i) {
    const uint64_t bytes = std::min<uint64_t>(drawn(subject.seed, 4, i) % 80, wanted.size() - at);
    copies.push_back({to.at() + at, from.at() + at, bytes});
    at += bytes;
  }
  std::reverse(copies.begin(), copies.end());
  must("copy_batch_async", accelerator.call(&Slots::copy_batch_async, static_cast<const pliant_copy*>(copies.data()),
                                            copies.size(), stream));
  copies.assign(copies.size(), {});  // the array may be gone
  stream.wait();
  compare(to.get("a batch of copies"), wanted, "a batch of copies");
}

void large_copies(const Subject& subject) {
  const Accelerator accelerator(subject);
  constexpr uint64_t kBytes = (uint64_t{48} << 20U) + 17;
  const Stream stream(accelerator);
  const Memory from(accelerator, kBytes);
  const Memory to(accelerator, kBytes);
  const Bytes wanted = drawn_bytes(subject.seed, 5, kBytes);
  accelerator.write(from.at(), wanted.data(), kBytes);
  must("copy_async", copy(accelerator, to.at(), from.at(), kBytes, stream));
  stream.wait();
  Bytes got(kBytes);
  accelerator.read(got.data(), to.at(), kBytes);
  compare(got, wanted, "a copy of 48 MiB");
}

void between_devices(const Subject& subject) {
  const Accelerator accelerator(subject);
  if (accelerator.devices() < 2) skip("there is one device only");
  const Bytes wanted = drawn_bytes(subject.seed, 6, 100003);
  for (int32_t from = 0; from < accelerator.devices(); ++from) {
    for (int32_t to = 0; to < accelerator.devices(); ++to) {
      const Stream stream(accelerator, from);
      const Memory source(accelerator, wanted.size(), PLIANT_MEMORY_DEVICE, from);
      const Memory target(accelerator, wanted.size(), PLIANT_MEMORY_DEVICE, to);
      Bytes got(wanted.size());
      must("copy_async", copy(accelerator, source.at(), wanted.data(), wanted.size(), stream));
      must("copy_async", copy(accelerator, target.at(), source.at(), wanted.size(), stream));
      must("copy_async", copy(accelerator, got.data(), target.at(), wanted.size(), stream));
      stream.wait();
      compare(got, wanted, "a copy from device " + std::to_string(from) + " to device " + std::to_string(to));
    }
  }
}

void fill(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const uint64_t bytes : kSizes) {
    for (const uint64_t offset : kOffsets) {
      const std::string what = sized("a fill", bytes, offset);
      const auto value = static_cast<unsigned char>(drawn(subject.seed, bytes, offset));
      const Guarded to(accelerator, bytes, offset);
      must("fill_async", accelerator.call(&Slots::fill_async, static_cast<void*>(to.at()), value, bytes, stream));
      stream.wait();
      compare(to.get(what), Bytes(bytes, value), what);
    }
  }
}

void fill_nothing(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  const Guarded to(accelerator, 64);
  const Bytes before = to.get("nothing");
  must("fill_async of 0 bytes", accelerator.call(&Slots::fill_async, static_cast<void*>(to.at()), 9, 0, stream));
  stream.wait();
  compare(to.get("a fill of 0 bytes"), before, "the target of a fill of 0 bytes");
}

}  // namespace

std::vector<Check> copy_checks() {
  return {
      {"copy.device", "a copy within device memory moves its bytes and no others", within_device},
      {"copy.host", "a copy from plain or pinned host memory and back moves its bytes and no others", with_host},
      {"copy.empty", "copies of 0 bytes are no error and change nothing", of_nothing},
      {"copy.batch", "a batch of copies is complete, and its array may be freed at once", batch},
      {"copy.large", "a copy of 48 MiB is complete", large_copies},
      {"copy.huge", "a copy of more than 4 GiB is complete", huge_copy, 120},
      {"copy.devices", "copies between all pairs of devices are complete", between_devices, 60},
      {"fill.bytes", "a fill sets its bytes and no others", fill},
      {"fill.empty", "a fill of 0 bytes is no error and changes nothing", fill_nothing, 10},
  };
}

std::vector<Check> work_checks() {
  std::vector<Check> all = copy_checks();
  for (const auto& part : {reduce_checks(), cast_checks(), digest_checks()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace pliant::testkit
