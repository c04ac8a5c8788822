// WorkerGroup: child processes that answer questions, one for each rank. None of them outlives it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pliant/error.hpp"

namespace pliant::cli {

class WorkerGroup {
 public:
  using Json = nlohmann::ordered_json;
  /// Answers one question in a child. What it throws ends the child and is thrown by ask().
  using Answer = std::function<Json(const Json& question)>;

  /// Forks `ranks` children; each calls `make(rank)` and answers with what that returns. The caller has no threads.
  WorkerGroup(int32_t ranks, const std::function<Answer(int32_t rank)>& make);
  /// Kills whoever is still there, and waits for their ends.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  [[nodiscard]] int32_t ranks() const { return static_cast<int32_t>(members_.size()); }
  /// The answers of all ranks, in their order. `task` names the question in errors. Throws Error: of a rank that died
  /// or failed, with its number; of the rank that failed first where others failed because of it. The group is of no
  /// use then. Throws StoppedBySignal when a signal came and StopSignals lives.
  std::vector<Json> ask(const Json& question, const std::string& task);
  Json ask_one(int32_t rank, const Json& question, const std::string& task);

 private:
  WorkerGroup() = default;
  struct Member {
    pid_t pid = -1;
    int socket = -1;
    std::string unread;
    bool ended = false;   ///< has closed its side: it is dying or dead
    bool reaped = false;  ///< was waited for
  };
  /// A rank that will answer no more.
  struct Casualty {
    int weight = 0;  ///< the heaviest is the cause of the others
    Error error{Status::kInternal, ""};
  };

  /// Reads what is there, or waits for that up to timeout_ms (-1: without limit).
  void wait_for_words(int timeout_ms);
  std::vector<Json> gather(const std::vector<int32_t>& asked, const std::string& task);
  [[nodiscard]] Casualty casualty(int32_t rank, const Json& words, const std::string& task) const;
  [[nodiscard]] Casualty death(int32_t rank, const std::string& task);
  [[nodiscard]] std::string name_of(int32_t rank) const;

  std::vector<Member> members_;
};

}  // namespace pliant::cli
