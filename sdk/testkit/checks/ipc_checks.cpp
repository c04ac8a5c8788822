// Memory of one process in another: rank 0 owns it, rank 1 imports it.
#include <initializer_list>
#include <list>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/ipc_pair.hpp"

namespace pliant::testkit {

namespace {

constexpr int kRounds = 20;

/// Through streams, as memory of a device is.
void put(const Accelerator& accelerator, void* to, const Bytes& bytes) {
  const Stream stream(accelerator);
  must("copy_async", accelerator.call(&pliant_accelerator::copy_async, to, bytes.data(), bytes.size(), stream));
  stream.wait();
}
void expect_holds(const Accelerator& accelerator, const void* from, const Bytes& wanted, const std::string& otherwise) {
  Bytes got(wanted.size());
  const Stream stream(accelerator);
  must("copy_async", accelerator.call(&pliant_accelerator::copy_async, got.data(), from, got.size(), stream));
  stream.wait();
  expect(got == wanted, otherwise);
}

void memory_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  std::list<Memory> kept;  // so that no two have one address
  for (const uint64_t bytes : std::initializer_list<uint64_t>{1, 4096, 300007}) {
    const Bytes first = pattern(bytes, rank.seed + bytes);
    const Bytes second = pattern(bytes, rank.seed + bytes + 1);
    const Bytes third = pattern(bytes, rank.seed + bytes + 2);
    if (rank.rank == 0) {
      const Memory& memory = kept.emplace_back(accelerator, bytes, PLIANT_MEMORY_EXCHANGE);
      put(accelerator, memory.at(), first);
      hand_over(rank, post, exported(accelerator, memory.at()));
      meet(rank);
      expect_holds(accelerator, memory.at(), second, "what another process wrote is not seen by the owner");
      put(accelerator, memory.at(), third);
      meet(rank);
      meet(rank);  // rank 1 has released it
    } else {
      const pliant_ipc_handle handle = take(rank, post);
      sdk::ImportedMemory memory = imported(accelerator, handle);
      close_descriptor(handle);
      expect_holds(accelerator, memory.get(), first,
                   "what the owner wrote before the import is not seen by another process");
      put(accelerator, memory.get(), second);
      meet(rank);
      meet(rank);
      expect_holds(accelerator, memory.get(), third,
                   "what the owner wrote after the import is not seen by another process");
      memory.reset();
      meet(rank);
    }
  }
  end(rank);
}

void imports_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  constexpr uint64_t kBytes = 70001;
  const Bytes later = pattern(kBytes, rank.seed + 3);
  if (rank.rank == 0) {
    const Memory memory(accelerator, kBytes, PLIANT_MEMORY_EXCHANGE);
    // Two handles to one allocation are as good as one that is used twice.
    hand_over(rank, post, exported(accelerator, memory.at()));
    hand_over(rank, post, exported(accelerator, memory.at()));
    meet(rank);
    put(accelerator, memory.at(), later);
    meet(rank);
    return end(rank);
  }
  const pliant_ipc_handle handle = take(rank, post);
  const pliant_ipc_handle other = take(rank, post);
  sdk::ImportedMemory first = imported(accelerator, handle);
  sdk::ImportedMemory second = imported(accelerator, other);
  sdk::ImportedMemory third = imported(accelerator, handle);
  first.reset();
  third.reset();
  meet(rank);
  meet(rank);
  expect_holds(accelerator, second.get(), later,
               "after two of three imports were released, the third does not see what the owner writes");
  second.reset();
  sdk::ImportedMemory again = imported(accelerator, handle);
  expect_holds(accelerator, again.get(), later,
               "memory that was released and imported again does not hold what the owner has");
  again.reset();
  close_descriptor(handle);
  close_descriptor(other);
  end(rank);
}

/// Allocations of one size, one after the other, until one has the address of an earlier one.
void new_memory_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  constexpr uint64_t kBytes = 70001;
  if (rank.rank == 0) {
    pliant_ipc_handle old{};
    const void* at = nullptr;
    for (int round = 0; round < kRounds; ++round) {
      const Memory memory(accelerator, kBytes, PLIANT_MEMORY_EXCHANGE);
      const bool same_place = memory.at() == at;
      const pliant_ipc_handle handle = exported(accelerator, memory.at());
      expect(round == 0 || std::memcmp(old.bytes, handle.bytes, sizeof(old.bytes)) != 0,
             "an allocation has the handle of one that was freed" +
                 std::string(same_place ? ", and lay at the same address" : ""));
      close_descriptor(handle);
      old = handle;
      at = memory.at();
    }
    const Memory memory(accelerator, kBytes, PLIANT_MEMORY_EXCHANGE);
    put(accelerator, memory.at(), pattern(kBytes, rank.seed));
    hand_over(rank, post, exported(accelerator, memory.at()));
    return end(rank);
  }
  const pliant_ipc_handle handle = take(rank, post);
  sdk::ImportedMemory memory = imported(accelerator, handle);
  expect_holds(accelerator, memory.get(), pattern(kBytes, rank.seed),
               "a handle gives other memory than the exported one");
  memory.reset();
  close_descriptor(handle);
  end(rank);
}

void freed_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  if (rank.rank == 0) {
    pliant_ipc_handle handle{};
    {
      const Memory memory(accelerator, 4096, PLIANT_MEMORY_EXCHANGE);
      handle = exported(accelerator, memory.at());
    }
    hand_over(rank, post, handle);
    return end(rank);
  }
  const pliant_ipc_handle handle = take(rank, post);
  void* at = &at;
  const Outcome outcome = accelerator.call(&pliant_ipc::import_memory, 0, &handle, &at);
  expect(outcome.status == PLIANT_FAILED_PRECONDITION, "import_memory of memory that its owner has freed returned " +
                                                           outcome.text() + ", not PLIANT_FAILED_PRECONDITION");
  expect(at == nullptr, "an import that was refused gave an address");
  close_descriptor(handle);
  end(rank);
}

void refused(const Subject& subject) {
  const Accelerator accelerator(subject);
  if (accelerator.ipc() == nullptr) skip("it does not offer the extension " PLIANT_IPC);
  const Memory memory(accelerator, 4096, PLIANT_MEMORY_EXCHANGE);
  const Memory device(accelerator, 4096);
  const Memory pinned(accelerator, 4096, PLIANT_MEMORY_PINNED);
  pliant_ipc_handle handle{};
  const auto export_of = [&](const void* pointer) {
    return accelerator.call(&pliant_ipc::export_memory, 0, pointer, &handle);
  };
  refused_as("export_memory of device memory", export_of(device.at()), PLIANT_INVALID_ARGUMENT);
  refused_as("export_memory of pinned memory", export_of(pinned.at()), PLIANT_INVALID_ARGUMENT);
  refused_as("export_memory of an address inside an allocation", export_of(memory.at(64)), PLIANT_INVALID_ARGUMENT);
  handle = exported(accelerator, memory.at());
  void* at = nullptr;
  refused_as("import_memory of this process's own memory",
             accelerator.call(&pliant_ipc::import_memory, 0, &handle, &at), PLIANT_FAILED_PRECONDITION);
  close_descriptor(handle);
}

void leaks_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const HandlePost post = post_of(rank);
  int64_t before = 0;
  for (int round = 0; round <= kRounds; ++round) {
    if (rank.rank == 0) {
      const Memory memory(accelerator, 4096, PLIANT_MEMORY_EXCHANGE);
      hand_over(rank, post, exported(accelerator, memory.at()));
      hand_over(rank, post, exported(accelerator, memory.at()));
      meet(rank);
    } else {
      for (int i = 0; i < 2; ++i) {
        const pliant_ipc_handle handle = take(rank, post);
        static_cast<void>(imported(accelerator, handle));
        close_descriptor(handle);
      }
      meet(rank);
    }
    if (round == 0) before = open_descriptors();  // what the first use leaves open stays
  }
  const int64_t more = open_descriptors() - before;
  expect(more <= 0, std::to_string(more) + " file descriptors more are open after " + std::to_string(kRounds) +
                        (rank.rank == 0 ? " allocations were exported and freed" : " imports were made and released"));
  end(rank);
}

void memory(const Subject& s) {
  run_pair(s, "ipc_memory");
}
void imports(const Subject& s) {
  run_pair(s, "ipc_imports");
}
void new_memory(const Subject& s) {
  run_pair(s, "ipc_new_memory");
}
void freed(const Subject& s) {
  run_pair(s, "ipc_freed");
}
void leaks(const Subject& s) {
  run_pair(s, "ipc_leaks");
}

}  // namespace

std::vector<Script> ipc_scripts() {
  return {{"ipc_memory", memory_script},
          {"ipc_imports", imports_script},
          {"ipc_new_memory", new_memory_script},
          {"ipc_freed", freed_script},
          {"ipc_leaks", leaks_script}};
}

std::vector<Check> ipc_checks() {
  return {
      {"ipc.memory", "one process reads and writes exchange memory of another, before and after the import", memory},
      {"ipc.imports", "memory may be imported several times and stays mapped until the last release", imports},
      {"ipc.new_memory", "a new allocation at the address of a freed one has another handle", new_memory},
      {"ipc.freed", "freed memory cannot be imported", freed},
      {"ipc.refused", "only exchange memory can be exported, and no process imports its own", refused},
      {"ipc.leaks", "handles and imports leave no file descriptor open", leaks},
  };
}

}  // namespace pliant::testkit
