// What is behind the handle of a session, which is known to the functions of devices and of sharded models.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device_handles.hpp"
#include "handles.hpp"
#include "pliant/session.hpp"
#include "sharded_handle.hpp"

struct pliant_session_t : pliant::capi::MakerHandle<pliant::capi::Tag::kSession> {
  static constexpr const char* kName = "session";
  explicit pliant_session_t(pliant::Session attached) : session(std::move(attached)) {}
  ~pliant_session_t() {
    if (sharded) sharded->model.reset();  // it uses the session to its end
  }
  pliant_session_t(const pliant_session_t&) = delete;
  pliant_session_t& operator=(const pliant_session_t&) = delete;

  /// The step that pliant_session_next gave and that was not committed.
  [[nodiscard]] pliant::Step& step_in_hand() const {
    if (step != nullptr) return *step;
    throw pliant::Error(pliant::Status::kFailedPrecondition,
                        "there is no step in hand: call pliant_session_next first");
  }
  [[nodiscard]] pliant::RowRange micro_batch(uint64_t number) const {
    const auto& all = step_in_hand().micro_batches();
    if (number < all.size()) return all[number];
    throw pliant::capi::wrong("there is no micro-batch " + std::to_string(number) + ": this rank has " +
                              std::to_string(all.size()) + ", counted from 0");
  }
  void take(pliant::Step& next) {
    batch = std::make_unique<pliant_batch_t>(next.shared_batch(), dataset);
    batch->is_lent = true;
    for (const pliant::RowRange rows : next.micro_batches()) micros.insert(micros.end(), {rows.first, rows.count});
    step = &next;
    last_step = &next;
  }
  void let_go() {
    committed.reset();
    step = nullptr;
    last_step = nullptr;
    micros.clear();
    batch.reset();
    coming.clear();
  }
  /// A step that is to come, lent to the program.
  struct Coming {
    int64_t shares = 0;
    std::unique_ptr<pliant_batch_t> batch;
    std::vector<int64_t> micros;
  };

  int calls = 0;  // under way that may call the program back: one, and what its callbacks call
  std::unique_ptr<pliant::TrainingState> state;  // outlives the session
  pliant::Session session;
  std::vector<pliant::Busy> busy;  // begun, and not ended
  std::shared_ptr<pliant::capi::ShardedCore> sharded;
  std::unique_ptr<pliant_stream_t> stream;
  std::shared_ptr<const pliant::Dataset> dataset;
  pliant::Step* step = nullptr;
  pliant::Step* last_step = nullptr;  // the same, until the next one
  std::unique_ptr<pliant_batch_t> batch;
  std::vector<int64_t> micros;
  std::map<int64_t, Coming> coming;  // by how far ahead, since the last pliant_session_next
  std::optional<pliant::Committed> committed;
};

namespace pliant::capi {

/// A call on a session that may call the program back: the session is not freed meanwhile.
class SessionCall {
 public:
  explicit SessionCall(pliant_session_t* handle) : known_(makers(handle)) { ++known_.calls; }
  ~SessionCall() { --known_.calls; }
  SessionCall(const SessionCall&) = delete;
  SessionCall& operator=(const SessionCall&) = delete;
  [[nodiscard]] pliant_session_t& session() const { return known_; }

 private:
  pliant_session_t& known_;
};

/// What a C program brings to a job. Throws for one that is none.
[[nodiscard]] std::unique_ptr<TrainingState> training_state_of(const pliant_state_t& given);

/// Starts the session with what the program brings, by `start`, which has the data set and the state.
template <class Start>
void start_session(pliant_session_t& session, const pliant_dataset_t* dataset, const pliant_state_t& state,
                   const Start& start) {
  if (session.state) throw Error(Status::kFailedPrecondition, "this session was started before");
  auto brought = training_state_of(state);
  const Config& config = session.session.config();
  auto data = std::make_shared<const Dataset>(
      complete_dataset(config, dataset != nullptr ? *given(dataset).dataset : load_dataset(config)));
  start(*data, *brought);  // what fails keeps nothing of it, and may be tried again
  session.state = std::move(brought);
  session.dataset = std::move(data);
}

}  // namespace pliant::capi
