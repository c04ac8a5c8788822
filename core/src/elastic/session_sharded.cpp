// Session: what is different where the state is cut over the ranks: where it comes from, where it goes.
#include <fmt/format.h>

#include <algorithm>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "data/digest.hpp"
#include "elastic/agent/warden.hpp"
#include "elastic/session_state.hpp"
#include "elastic/snapshot_draft.hpp"

namespace pliant {
namespace {

/// The state's arrays as a snapshot lists them: each as long as the model has elements.
std::string layout_of(const std::vector<std::string>& names, uint64_t elements) {
  std::string layout;
  for (const std::string& name : names) layout += fmt::format("{} f32[{}]\n", name, elements);
  return layout;
}

std::string in_one_line(std::string layout) {
  if (!layout.empty()) layout.pop_back();
  for (size_t at = 0; (at = layout.find('\n', at)) != std::string::npos; at += 2) layout.replace(at, 1, ", ");
  return layout.empty() ? "none" : layout;
}

/// A line of a layout: "momentum f32[9000]".
struct ArrayLine {
  std::string name;
  std::string type;
};

std::vector<ArrayLine> lines_of(const std::string& layout) {
  std::vector<ArrayLine> lines;
  std::istringstream in(layout);
  for (ArrayLine line; in >> line.name >> line.type;) lines.push_back(line);
  return lines;
}

Error other_model(const std::string& how) {
  return {Status::kFailedPrecondition,
          fmt::format("it belongs to another model: {}; build the model that wrote it, or start a new run", how),
          Origin::kInput};
}

}  // namespace

std::vector<std::string> Session::State::names_of_shards() const {
  std::vector<std::string> names{"weights"};
  const auto& states = sharded->state_names();
  names.insert(names.end(), states.begin(), states.end());
  return names;
}

std::string Session::State::state_layout() const {
  return sharded != nullptr ? layout_of(names_of_shards(), sharded->model.elements()) : arrays->layout();
}

void Session::State::begin_shards(Communicator& group) {
  constexpr int32_t kDonor = 0;
  const bool is_alone = group.world_size() == 1;
  kept = {};
  applied = 0;
  if (is_alone) {
    sharded->initialise();
  } else {
    channel.send(elastic::Copying{form.generation, false});
    sharded->initialise(elastic::sharing_of(group, *stream, *accelerator, device, kDonor));
  }
  learning_rate->load(first_lr_state);
  if (form.rank == kDonor) or_throw(first_rest->read([this](std::istream& in) { elastic::load_whole(*program, in); }));
  if (is_alone) return;
  const bool takes = form.rank != kDonor;
  elastic::SharedState rest{applied, learning_rate->save()};
  elastic::share_state(group, *stream, *accelerator, device, kDonor, rest, *arrays, *program, takes, [&] {
    if (takes) strike(elastic::InjectionPoint::kCopy);
  });
  if (takes) take_state(rest);
}

elastic::Formed Session::State::form_shards() {
  Communicator& group = communicator.get();
  if (form.owners.empty()) {
    sharded->enter_group(group, form.generation);
    begin_visits();
    if (!form.restore.empty()) {
      load_snapshot();
      sharded->stamp(applied);
    } else {
      begin_shards(group);
    }
    sharded->restore_coordinator(kept_coordinator());
    return {form.generation, sharded->ownership().save()};
  }
  if (form.copy_state) {  // the rest; parts of the state move
    const elastic::SharedState copied = copy_state(group);
    if (form.wants_state) take_state(copied);
  }
  const std::vector<int32_t> was(form.was.begin(), form.was.end());
  const auto from = or_throw(sharded::Ownership::load(form.owners));
  const int64_t holds = applied;
  const uint64_t sent = sharded->enter_group(group, from, was, static_cast<int32_t>(form.stay), holds, [&] {
    applied = -1;  // until all of it has moved
    channel.send(elastic::Copying{form.generation, true});
    strike(elastic::InjectionPoint::kCopy);
  });
  applied = holds;
  begin_visits();
  if (form.stay == form.world_size) sharded->restore_coordinator(kept_coordinator());
  return {form.generation, sharded->ownership().save(), static_cast<int64_t>(sent)};
}

void Session::State::keep_coordinator() {
  kept = {applied, sharded->save_coordinator()};
}

std::string Session::State::kept_coordinator() const {
  return kept.step == applied ? kept.coordinator : std::string();
}

void Session::State::begin_visits() {
  if (!form.visits.empty() && !sharded->shows_visits()) {
    Result<sharded::VisitPage> page = sharded::VisitPage::create(directory.path() / form.visits, sharded->model);
    if (page) {
      sharded->show_visits(std::move(*page));
    } else {
      Log("session").write(LogLevel::kWarning, fmt::format("differences between the visits of this worker and others "
                                                           "can be detected only at the commit, without the module: {}",
                                                           page.error().message()));
    }
  }
  sharded->begin_visits(form.generation);
}

std::string Session::State::digest_of_model() const {
  return noted(sharded->model.description() + state_layout());
}

std::string Session::State::digest_of_parameters() const {
  data::Digest of_parameters;
  for (const sharded::ParameterRow& row : sharded->model.parameters()) {
    of_parameters.add(std::string_view(fmt::format("{} [{}]\n", row.name, fmt::join(row.shape, ","))));
  }
  return fmt::format("{:016x}", of_parameters.value());
}

Session::State::Source Session::State::source_in_order(const elastic::SnapshotHeader& written) const {
  if (written.arrays != state_layout()) {
    throw other_model(
        fmt::format("its arrays are {} instead of {}", in_one_line(written.arrays), in_one_line(state_layout())));
  }
  if (!written.model.empty() && written.model != digest_of_parameters())
    throw other_model("its parameters have other names, shapes or another order");
  Source source;
  source.elements = sharded->model.elements();
  if (source.elements > 0) source.runs.push_back({0, source.elements, 0});
  for (size_t i = 0; i < names_of_shards().size(); ++i) source.arrays.push_back(i);
  return source;
}

Session::State::Source Session::State::source_by_name(const elastic::SnapshotHeader& written) const {
  const sharded::ParameterIndex index = or_throw(sharded::ParameterIndex::parse(written.parameters));
  auto runs = index.place(sharded->model);
  if (!runs) throw other_model(runs.error().message());
  Source source;
  source.runs = std::move(*runs);
  source.elements = index.elements();
  const std::vector<ArrayLine> lines = lines_of(written.arrays);
  const std::string type = fmt::format("f32[{}]", source.elements);
  const std::vector<std::string> names = names_of_shards();
  for (const std::string& name : names) {
    const auto found =
        std::find_if(lines.begin(), lines.end(), [&name](const ArrayLine& line) { return line.name == name; });
    if (found == lines.end()) throw other_model(fmt::format("it lacks {} of its parameters", name));
    if (found->type != type) throw other_model(fmt::format("its {} is {} instead of {}", name, found->type, type));
    source.arrays.push_back(static_cast<size_t>(found - lines.begin()));
  }
  for (const ArrayLine& line : lines) {
    if (std::find(names.begin(), names.end(), line.name) == names.end())
      throw other_model(fmt::format("its parameters have {}, which those of this program lack", line.name));
  }
  return source;
}

void Session::State::read_shards(std::istream& in, const elastic::SnapshotHeader& written) {
  // A job that has its state whole names no parameters, nor did older releases.
  const Source source = written.parameters.empty() ? source_in_order(written) : source_by_name(written);
  const uint64_t array_bytes = source.elements * sizeof(float);
  const std::streamoff begin = in.tellg();
  for (size_t number = 0; number < source.arrays.size(); ++number) {
    for (const sharded::ShardRun& run : sharded->runs(number)) {
      for (const sharded::PlacedRun& placed : source.runs) {
        const uint64_t first = std::max(run.first, placed.first);
        const uint64_t end = std::min(run.first + run.count, placed.first + placed.count);
        if (first >= end) continue;
        const uint64_t element = placed.in_index + first - placed.first;
        in.seekg(begin + static_cast<std::streamoff>(source.arrays[number] * array_bytes + element * sizeof(float)));
        read_elements(in, run.at + (first - run.first), end - first);
      }
    }
  }
  in.seekg(begin + static_cast<std::streamoff>(source.arrays.size() * array_bytes));
}

void Session::State::read_elements(std::istream& in, float* to, uint64_t count) {
  uint64_t now = 0;
  for (uint64_t done = 0; done < count * sizeof(float); done += now) {
    now = std::min<uint64_t>(count * sizeof(float) - done, staging->bytes());
    if (!in.read(staging->data(), static_cast<std::streamsize>(now))) return;
    program_stream->copy(reinterpret_cast<char*>(to) + done, staging->data(), now);
    program_stream->synchronize();
  }
}

void Session::State::write_part(const std::string& file) {
  elastic::SnapshotHeader header{applied, fingerprint(), learning_rate->save(), facts.run_id, state_layout()};
  header.parameters = sharded::ParameterIndex::of(sharded->model).text();
  header.coordinator = kept_coordinator();
  const std::string head = elastic::head_of_snapshot(header);
  const uint64_t begin = head.size();
  parts_of.reset();
  data::Digest beside;
  beside.add(std::string_view(head));
  const auto write = [&]() -> Result<> {
    sharded->require_step(applied);
    auto rest =
        elastic::Spool::of((directory.path() / file).parent_path(), [this](std::ostream& out) { program->save(out); });
    if (!rest) return failed(std::move(rest));
    beside.add(rest->bytes());
    beside.add(rest->checksum());
    parts_of.emplace(Parts{file, form.generation, std::move(header), std::move(*rest)});
    auto draft =
        elastic::SnapshotDraft::open(elastic::draft_of(directory.path() / file, form.generation, word_of_agent));
    if (!draft) return failed(std::move(draft));
    const uint64_t array_bytes = sharded->model.elements() * sizeof(float);
    for (size_t number = 0; number < names_of_shards().size(); ++number) {
      for (const sharded::ShardRun& run : sharded->runs(number)) {
        const uint64_t bytes = run.count * sizeof(float);
        uint64_t now = 0;
        for (uint64_t done = 0; done < bytes; done += now) {
          now = std::min<uint64_t>(bytes - done, staging->bytes());
          program_stream->copy(staging->data(), reinterpret_cast<const char*>(run.at) + done, now);
          program_stream->synchronize();
          const uint64_t at = begin + number * array_bytes + run.first * sizeof(float) + done;
          if (Result<> written = draft->write(at, staging->data(), now); !written) return written;
          strike(elastic::InjectionPoint::kSnapshot);
        }
      }
    }
    return draft->sync();
  };
  std::vector<uint64_t> digests;
  const std::string error = with_hooks(file, [&]() -> std::string {
    try {
      const Result<> written = write();
      if (!written) return written.error().message();
      if (config.run().digest_every > 0) {
        sharded->require_unchanged();  // else the file has what changed since the update
        digests = sharded->digests();
      }
      return {};
    } catch (const Error& failure) {
      return failure.message();
    }
  });
  channel.send(elastic::PartWritten{applied, file, error, form.generation, elastic::digest_of_cut(sharded->owned()),
                                    beside.value(), std::move(digests)});
}

void Session::State::finish_snapshot(const elastic::Assemble& order) {
  Result<> done = failed(Status::kFailedPrecondition, "this rank no longer has a part of it");
  if (parts_of && parts_of->file == order.file && parts_of->header.step == order.step) {
    strike(elastic::InjectionPoint::kFinish);
    const std::filesystem::path file = directory.path() / order.file;
    const uint64_t array_bytes = names_of_shards().size() * sharded->model.elements() * sizeof(float);
    done = elastic::finish_draft(elastic::draft_of(file, parts_of->generation, word_of_agent), file, parts_of->header,
                                 array_bytes, parts_of->rest);
  }
  elastic::SnapshotWritten answer{order.step, order.file, done ? std::string{} : done.error().message()};
  if (done && order.step == applied && order.digests.size() == names_of_shards().size()) {
    const elastic::StateDigest whole = digest_of_shards(order.digests);
    note(whole);
    answer.compared = true;
    answer.state = whole.root;
  }
  channel.send(answer);
}

void Session::State::take_digest_of_shards() {
  sharded->require_step(applied);
  shard_digests = sharded->digests();
}

elastic::StateDigest Session::State::digest_of_shards(const std::vector<uint64_t>& of_arrays) {
  const std::vector<std::string> names = names_of_shards();
  std::vector<elastic::DigestOfArray> taken;
  for (size_t i = 0; i < names.size(); ++i) {
    taken.push_back({names[i], of_arrays[i], sharded->model.elements() * sizeof(float)});
  }
  return elastic::digest_of_state(taken, *program, learning_rate->save());
}

}  // namespace pliant
