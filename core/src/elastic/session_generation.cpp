// Session: how a worker joins a generation and gets the state that it begins with.
#include <fmt/format.h>

#include <charconv>

#include "base/log.hpp"
#include "base/result.hpp"
#include "data/lengths_file.hpp"
#include "elastic/session_state.hpp"
#include "elastic/snapshot.hpp"

namespace pliant {

namespace {

std::string hex(const CommId& id) {
  std::string text;
  for (const uint8_t byte : id) text += fmt::format("{:02x}", byte);
  return text;
}

CommId from_hex(const std::string& text) {
  CommId id{};
  for (size_t i = 0; i < id.size() && 2 * i + 1 < text.size(); ++i) {
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, id[i], 16);
  }
  return id;
}

}  // namespace

void Session::State::write_data() {
  const Result<> written = data::write_dataset_once(directory.dataset(), batches->dataset());
  if (written) return channel.send(elastic::DataWritten{});
  const Error& error = written.error();
  channel.send(elastic::DataWritten{error.message(), static_cast<int>(error.status()), error.origin()});
}

std::optional<CommId> Session::State::wait_for_id() {
  while (true) {
    elastic::ToWorker message = receive();
    if (const auto* shared = std::get_if<elastic::CommIdShared>(&message)) {
      if (shared->generation == form.generation) return from_hex(shared->id);
    } else if (const auto* abort = std::get_if<elastic::Abort>(&message)) {
      if (abort->generation >= form.generation) return std::nullopt;
    } else {
      put_back = std::move(message);
      return std::nullopt;
    }
  }
}

void Session::State::load_snapshot() {
  refuses_snapshot = false;
  try {
    const auto header = or_throw(elastic::read_snapshot(
        directory.path() / form.restore,
        [this](std::istream& in, const elastic::SnapshotHeader& written) { load_state(in, written); },
        elastic::SnapshotOwner{facts.run_id, fingerprint()}));
    learning_rate->load(header.lr_state);
    applied = header.step;
    if (sharded != nullptr) kept = {applied, header.coordinator};
  } catch (const Error& error) {
    refuses_snapshot = error.origin() == Origin::kInput;
    throw;
  }
}

void Session::State::load_state(std::istream& in, const elastic::SnapshotHeader& header) {
  if (sharded != nullptr) {
    read_shards(in, header);
  } else if (!header.arrays.empty()) {
    arrays->require(header.arrays, "the snapshot");
    elastic::read_arrays(*arrays, in, *program_stream, staging_of_arrays());
  }
  elastic::load_whole(*program, in);
}

elastic::SharedState Session::State::copy_state(Communicator& group) {
  elastic::SharedState state{applied, learning_rate->save(), kept_coordinator(), {}};
  const bool takes = form.wants_state && form.rank != form.donor;
  const bool in_place = takes && sharded == nullptr;
  if (in_place) applied = -1;
  channel.send(elastic::Copying{form.generation, in_place});
  program_stream->synchronize();
  elastic::share_state(group, *stream, *accelerator, device, static_cast<int32_t>(form.donor), state, *arrays, *program,
                       takes, [&] {
                         if (takes) strike(elastic::InjectionPoint::kCopy);
                       });
  return state;
}

void Session::State::take_state(const elastic::SharedState& state) {
  if (state.refusal) std::rethrow_exception(state.refusal);
  applied = state.step;
  kept = {applied, state.coordinator};
  learning_rate->load(state.lr_state);
}

void Session::State::require_device() {
  try {
    program_stream->synchronize();
  } catch (const Error& error) {
    if (error.status() == Status::kFailedPrecondition) throw;  // the others are of the passes that were given up
  }
}

bool Session::State::load_whole_snapshot() {
  try {
    load_snapshot();
    return true;
  } catch (const Error& error) {
    if (!refuses_snapshot) throw;
    tell_broken(error);
    return false;
  }
}

bool Session::State::enter_generation() {
  if (form.next_step < asked_at) reason_to_end.clear();  // what it was asked for is void
  if (sharded != nullptr) sharded->leave_group();
  communicator.clear();
  if (sharded != nullptr) require_device();
  if (sharded == nullptr && form.rank == form.donor && !form.restore.empty() && !load_whole_snapshot()) return false;
  std::optional<elastic::SharedState> copied;
  elastic::Formed formed{form.generation};
  try {
    std::optional<CommId> id;
    if (form.rank == 0) {
      id = accelerator->make_comm_id(static_cast<int32_t>(form.world_size));
      channel.send(elastic::CommIdMade{form.generation, hex(*id)});
    } else {
      id = wait_for_id();
      if (!id) return false;
    }
    Communicator& group =
        communicator.put(std::make_unique<Communicator>(*accelerator, device, *id, static_cast<int32_t>(form.rank),
                                                        static_cast<int32_t>(form.world_size)),
                         form.generation);
    channel.send(elastic::Joining{form.generation});
    group.wait_ready();
    if (sharded != nullptr) {
      formed = form_shards();
    } else if (form.copy_state) {
      copied = copy_state(group);
    }
  } catch (const Error& error) {
    tell_broken(error);
    return false;
  }
  if (copied && form.wants_state && form.rank != form.donor) take_state(*copied);
  if (applied != form.next_step) {
    throw Error(Status::kInternal,
                fmt::format("this worker holds {} steps, but the generation begins at {}", applied, form.next_step));
  }
  rates = form.rates;
  last_evaluation = form.evaluation.step < 0 ? std::nullopt : std::optional(form.evaluation);
  ++shares;
  clock.skip_next();  // the first step of a generation warms up
  const bool makes_steps = sharded == nullptr || form.owners.empty() || form.stay == form.world_size;
  if (makes_steps) begin_recording();
  channel.send(formed);
  return makes_steps;
}

void Session::State::begin_recording() {
  if (form.trace.empty()) return;
  if (!recorder) {
    Result<sharded::TraceLog> log = sharded::TraceLog::create(directory.path() / form.trace);
    if (!log) {
      return Log("session").write(LogLevel::kWarning,
                                  fmt::format("this worker will be missing in the trace: {}", log.error().message()));
    }
    recorder.emplace(*accelerator, device, std::move(*log));
    if (sharded != nullptr) sharded->record(&*recorder);
  }
  if (sharded != nullptr) return sharded->begin_recording(form.generation);
  recorder->begin_group({.generation = form.generation,
                         .rank = static_cast<int32_t>(form.rank),
                         .world_size = static_cast<int32_t>(form.world_size)},
                        *stream);
}

void Session::State::answer(const elastic::Tell& tell) {
  if (!tell.compare || applied < 0) return channel.send(elastic::Holds{applied});
  last_digest = digest_of_state();
  channel.send(elastic::Holds{applied, true, last_digest->root});
}

bool Session::State::join() {
  while (true) {
    const elastic::ToWorker message = receive();
    if (std::holds_alternative<elastic::Stop>(message)) return false;
    if (std::holds_alternative<elastic::WriteData>(message)) write_data();
    if (const auto* tell = std::get_if<elastic::Tell>(&message)) answer(*tell);
    if (const auto* save = std::get_if<elastic::Save>(&message)) {
      if (sharded != nullptr) sharded->leave_group();
      communicator.clear();  // its generation is over, and the snapshot may need the descriptors that it holds
      if (save->step == applied && sharded != nullptr) {
        write_part(save->file);
      } else if (save->step == applied) {
        if (last_digest) note(*last_digest);
        write_snapshot(save->file);
      } else {
        channel.send(elastic::SnapshotWritten{
            save->step, save->file,
            applied < 0 ? "it holds a part of a state" : fmt::format("it holds {} steps", applied)});
      }
    }
    const auto* formed = std::get_if<elastic::Form>(&message);
    if (formed == nullptr) continue;  // of a generation that is over
    form = *formed;
    last_digest.reset();
    if (form.rank >= 0 && enter_generation()) return true;
  }
}

}  // namespace pliant
