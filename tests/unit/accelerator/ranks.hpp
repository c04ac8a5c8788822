// Runs one function as several ranks: processes (forked before any thread exists) or threads.
#pragma once

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "common/processes/futex.hpp"
#include "device.hpp"

namespace pliant_test {

/// A word that processes can wait for.
class Flag {
 public:
  void raise(uint32_t to = 1) {
    uint32_t now = word_.load();
    while (now < to && !word_.compare_exchange_weak(now, to)) {
    }
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  void wait(uint32_t at_least = 1) {
    for (uint32_t now = word_.load(); now < at_least; now = word_.load()) pliant::accelerator::futex_wait(word_, now);
  }
  void add() {
    word_.fetch_add(1);
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  [[nodiscard]] bool raised() const { return word_.load() != 0; }

 private:
  std::atomic<uint32_t> word_{0};
};

/// Memory that all ranks of a test share.
struct Board {
  Flag id_made;
  pliant_comm_id id{};
  Flag flags[8];
  std::atomic<int64_t> killed_at_us{0};
};

inline int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Rank {
  int32_t rank;
  int32_t world_size;
  Board& board;
  const Device& device;

  /// The id that rank 0 makes and the others receive.
  [[nodiscard]] pliant_comm_id id() const {
    if (rank == 0) {
      const Outcome made = device.call(&pliant_collectives::comm_id, world_size, &board.id);
      if (!made.ok()) throw std::runtime_error(made.message);
      board.id_made.raise();
    }
    board.id_made.wait();
    return board.id;
  }
};

/// What became of one rank. `text` is what the body returned: "" by convention means that all was well.
struct RankEnd {
  std::string text;
  int wait_status = 0;
  [[nodiscard]] bool killed() const { return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL; }
};

using RankBody = std::function<std::string(const Rank&)>;

/// And what said it did not crash behind that; see Processes::end_of.
inline bool starts_with(const std::string& text, const std::string& head) {
  return text.rfind(head, 0) == 0 && text.find(" [wait status ") == std::string::npos;
}

/// As Outcome::text() puts it.
inline std::string with_status(int32_t status, const std::string& text) {
  return std::to_string(status) + ": " + text;
}

inline std::string guarded_body(const RankBody& body, const Rank& rank) {
  try {
    return body(rank);
  } catch (const std::exception& failure) {
    return std::string("threw: ") + failure.what();
  }
}

/// Forked ranks of one test, each with a Device of its own.
class Processes {
 public:
  Processes(int32_t world_size, const RankBody& body, const OptionSettings& settings = {}, const char* file = kHostFile)
      : Processes(world_size, body, [&](int32_t) { return std::make_unique<Device>(settings, file); }) {}
  /// `make` is called in each process, with its rank.
  Processes(int32_t world_size, const RankBody& body,
            const std::function<std::unique_ptr<Device>(int32_t rank)>& make) {
    board_ = new (::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board();
    for (int32_t r = 0; r < world_size; ++r) {
      int ends[2] = {-1, -1};
      if (::pipe(ends) != 0) throw std::runtime_error("pipe");
      std::cout.flush();  // or the child would print it again
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(100);  // a rank that hangs must not hang the test
        ::close(ends[0]);
        std::string text;
        {
          const std::unique_ptr<Device> device = make(r);
          text = guarded_body(body, {r, world_size, *board_, *device});
        }
        const bool told = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
        ::_exit(told ? 0 : 9);
      }
      ::close(ends[1]);
      children_.push_back({child, ends[0]});
    }
  }
  ~Processes() {
    for (const Child& child : children_) {
      if (child.reaped) continue;
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
      ::close(child.words);
    }
    ::munmap(board_, sizeof(Board));
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  [[nodiscard]] Board& board() { return *board_; }
  void signal(int32_t rank, int which) { ::kill(children_[static_cast<size_t>(rank)].pid, which); }
  void kill(int32_t rank) { signal(rank, SIGKILL); }

  RankEnd end_of(int32_t rank) {
    Child& child = children_[static_cast<size_t>(rank)];
    RankEnd end;
    char part[512];
    for (ssize_t got = 0; (got = ::read(child.words, part, sizeof(part))) > 0;)
      end.text.append(part, static_cast<size_t>(got));
    ::close(child.words);
    ::waitpid(child.pid, &end.wait_status, 0);
    child.reaped = true;
    if (!WIFEXITED(end.wait_status) || WEXITSTATUS(end.wait_status) != 0) {
      end.text += " [wait status " + std::to_string(end.wait_status) + "]";
    }
    return end;
  }
  std::vector<RankEnd> ends() {
    std::vector<RankEnd> all;
    for (size_t r = 0; r < children_.size(); ++r) all.push_back(end_of(static_cast<int32_t>(r)));
    return all;
  }

 private:
  struct Child {
    pid_t pid;
    int words;
    bool reaped = false;
  };
  Board* board_;
  std::vector<Child> children_;
};

inline void expect_all_well(const std::vector<RankEnd>& ends) {
  for (size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r);
    CHECK(ends[r].text == "");
  }
}

inline void expect_all_well(Processes& processes) {
  expect_all_well(processes.ends());
}

/// Everything up to a ready communicator and a stream, then `body`.
inline RankBody when_ready(std::function<std::string(const Rank&, Comm&, const Stream&)> body) {
  return [body = std::move(body)](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome ready = comm.status(60000); !ready.ok()) return "not ready: " + ready.text();
    return body(self, comm, stream);
  };
}

/// The same body in threads that share one Device.
inline std::vector<std::string> run_threads(const Device& device, int32_t world_size, const RankBody& body) {
  Board board;
  std::vector<std::string> texts(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] {
      texts[static_cast<size_t>(r)] = guarded_body(body, {r, world_size, board, device});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

}  // namespace pliant_test
