// Every function of pliant.h, in any order and with any arguments that a C program may bring: an answer or a refusal.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <ostream>
#include <regex>
#include <set>
#include <string>

#include "elastic/snapshot.hpp"
#include "fuzz/capi_player.hpp"
#include "fuzz/job_calls.hpp"
#include "scratch_folder.hpp"

using pliant::test::Calls;
using pliant::test::Player;

namespace {

const char* const kToml =
    "config_version = 1\n[run]\nepochs = 2\n[elasticity]\nuse = \"exact\"\n[elasticity.exact]\n"
    "max_train_batch_size = 24\nmicro_batch_sizes = [2, 4]\nmax_gpus = 8\n"
    "[sampler]\nuse = \"concat\"\n[sampler.concat]\norder = \"random\"\nmax_tokens = 40\n[balancer]\nuse = \"lpt\"\n"
    "[lr]\nuse = \"linear\"\nbase_batch = 10\nunit = \"sequences\"\n[accelerator]\nuse = \"host\"\n[app]\nwidth = "
    "7\nname = \"a\"\n";

/// Where runs are begun; gone when the test ends.
const pliant::test::ScratchFolder& run_folder() {
  static const pliant::test::ScratchFolder one;
  return one;
}

/// A file of 200 lengths.
const std::string& lengths_file() {
  static const std::string one = [] {
    std::string text;
    for (size_t i = 0; i < 200; ++i) text += std::to_string(3 + i * 7 % 29) + '\n';
    return run_folder().write("lengths.txt", text).string();
  }();
  return one;
}

std::string some_toml(Player& p) {
  const std::string run = "[run]\n";
  std::string toml = kToml;
  if (p.once_in(4)) toml[p.below(toml.size())] = static_cast<char>(p.below(256));
  if (toml.find(run) == std::string::npos) toml = kToml;  // runs are begun in the folder of the test alone
  toml.insert(toml.find(run) + run.size(), "log_dir = \"" + run_folder().path().string() + "\"\n");
  return toml + "[data]\nlengths = \"" + (p.once_in(9) ? "/nowhere" : lengths_file()) + "\"\n";
}

const char* some_name(Player& p, const std::string& right) {
  return p.once_in(3) ? p.text() : right.c_str();
}

const pliant_config_options_t* some_options(Player& p) {
  auto* const options = p.room<pliant_config_options_t>();
  if (options == nullptr) return nullptr;
  options->flags = p.once_in(9) ? 0xff : PLIANT_CONFIG_NO_ENVIRONMENT;
  options->needs = p.once_in(9) ? p.text() : "elasticity sampler balancer lr accelerator";
  static const std::vector<const char*> kSets{"run.seed=3", "run.epochs=oops", "=", "run.seed=4"};
  if (p.once_in(4)) {
    options->sets = kSets.data();
    options->set_count = p.below(kSets.size() + 1);
  }
  if (p.once_in(9)) options->plugin_dir_count = 2;  // of an array that is NULL
  if (p.once_in(4)) options->name = p.text();
  return options;
}

int32_t make_dataset(Player& p) {
  auto* const lengths = p.room<pliant_lengths_t>();
  std::vector<int32_t> tokens(200);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(3 + i * 7 % 29);
  if (p.once_in(8)) tokens[p.below(tokens.size())] = static_cast<int32_t>(p.number());
  std::vector<int64_t> ids(200);
  std::iota(ids.begin(), ids.end(), int64_t{0});
  if (p.once_in(8)) ids[p.below(ids.size())] = static_cast<int64_t>(p.number());
  std::vector<int64_t> offsets;
  for (int64_t row = 0; row <= 40; ++row) offsets.push_back(row * 5);
  if (p.once_in(8)) offsets[p.below(offsets.size())] = static_cast<int64_t>(p.number());
  if (lengths != nullptr) {
    lengths->count = p.once_in(9) ? 0 : tokens.size() - p.below(9);
    lengths->lengths = p.once_in(9) ? nullptr : tokens.data();
    lengths->loss_tokens = p.once_in(3) ? tokens.data() : nullptr;
    lengths->source = p.text();
    lengths->content = p.below(3);
    lengths->row_count = p.once_in(3) ? offsets.size() - 1 : 0;
    lengths->row_offsets = p.once_in(9) || lengths->row_count == 0 ? nullptr : offsets.data();
    lengths->row_ids = p.once_in(9) || lengths->row_count == 0 ? nullptr : ids.data();
    lengths->costs = p.once_in(9) ? ids.data() : nullptr;
    lengths->row_costs = p.once_in(9) ? offsets.data() : nullptr;
  }
  return pliant_dataset_make(lengths, p.place<pliant_dataset_t>(), p.error());
}

int32_t parse(Player& p) {
  const std::string toml = some_toml(p);
  return pliant_config_parse(toml.data(), toml.size(), some_options(p), p.place<pliant_config_t>(), p.error());
}

int32_t open_file(Player& p) {
  const std::string file = run_folder().write("job.toml", some_toml(p)).string();
  return pliant_config_open(some_name(p, file), some_options(p), p.place<pliant_config_t>(), p.error());
}

/// Where the records of the player are; empty where there is none.
std::string some_run(Player& p) {
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  if (pliant_record_look(p.handle<pliant_record_t>(), &facts, nullptr) != PLIANT_OK) return {};
  return facts.directory;
}

/// A snapshot of one array, for no record has arrays.
const std::string& snapshot_file() {
  static const std::string one = [] {
    const std::string file = (run_folder() / "one.snapshot").string();
    const pliant::elastic::SnapshotHeader header{7, "00ff", "lr", "run-1", "w u8[2]\n"};
    REQUIRE(pliant::elastic::write_snapshot(file, header, [](std::ostream& out) { out << "ab"; }).has_value());
    return file;
  }();
  return one;
}

int32_t export_snapshot(Player& p) {
  auto* const options = p.room<pliant_export_options_t>();
  const int64_t step = p.number();
  if (options != nullptr) {
    options->flags = p.once_in(9) ? 0xff : static_cast<uint32_t>(p.below(4));
    options->step = p.once_in(4) ? &step : nullptr;
  }
  const std::string to = (run_folder() / (p.once_in(9) ? "none/made" : "made")).string();
  const std::string from = p.once_in(2) ? some_run(p) : snapshot_file();
  return pliant_export_snapshot(some_name(p, from), options, p.once_in(9) ? nullptr : to.c_str(),
                                p.room<pliant_exported_t>(), p.error());
}

/// Commits the next step, as a rank that computed all of it, or rows of another batch, or as a group that there is not.
int32_t commit(Player& p) {
  pliant_record_t* const record = p.handle<pliant_record_t>();
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  pliant_batch_size_t size = PLIANT_INIT(pliant_batch_size_t);
  pliant_sharing_t sharing = PLIANT_INIT(pliant_sharing_t);
  pliant_assignment_t* shares = nullptr;
  pliant_batch_t* batch = nullptr;
  if (!p.once_in(4)) pliant_record_start_generation(record, 1, "start", nullptr);
  pliant_record_look(record, &facts, nullptr);
  pliant_batches_t* const batches = p.handle<pliant_batches_t>();
  if (p.once_in(2))
    pliant_batches_at_step(batches, p.once_in(6) ? p.number() : facts.steps, &batch, nullptr);
  else
    pliant_batches_batch(batches, facts.epoch, p.once_in(6) ? p.number() : facts.index, &batch, nullptr);
  pliant_batch_size(batch, &size, nullptr);
  sharing.world_size = p.once_in(6) ? p.small() : 1;
  pliant_share_out(p.once_in(6) ? p.small() : size.rows, &sharing, &shares, nullptr);
  const int32_t status = pliant_record_commit(record, batch, p.once_in(6) ? p.handle<pliant_assignment_t>() : shares,
                                              p.real(), p.real(), p.error());
  pliant_assignment_free(shares);
  pliant_batch_free(batch);
  return status;
}

/// A run that a record was begun for, and closed, or is still open.
int32_t open_record(Player& p) {
  pliant_config_t* const config = p.handle<pliant_config_t>();
  pliant_plan_t* const plan = p.handle<pliant_plan_t>();
  pliant_batches_t* const batches = p.handle<pliant_batches_t>();
  pliant_record_t* closed = nullptr;
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  pliant_record_begin(config, plan, batches, &closed, nullptr);
  pliant_record_look(closed, &facts, nullptr);
  const std::string run = closed == nullptr || p.once_in(4) ? some_run(p) : facts.directory;
  pliant_record_free(closed);
  return pliant_record_open(some_name(p, run), config, p.once_in(6) ? p.handle<pliant_plan_t>() : plan, batches,
                            p.place<pliant_record_t>(), p.error());
}

/// Callbacks that end well, or with the player's status.
struct Ends {
  explicit Ends(Player& p)
      : status(p.once_in(6) ? static_cast<int32_t>(p.below(PLIANT_INTERNAL)) : PLIANT_OK), left(p.below(4)) {}
  int32_t status;
  uint64_t left;
  std::array<char, 64> piece{};

  static int32_t length_of(void* context, int64_t number, int64_t* length) {
    *length = 1 + number % 9;
    return static_cast<const Ends*>(context)->status;
  }
  static int32_t progress(void* context, int64_t, int64_t) { return static_cast<const Ends*>(context)->status; }
  static int32_t next(void* context, const void** piece, uint64_t* bytes) {
    auto& of = *static_cast<Ends*>(context);
    *piece = of.piece.data();
    *bytes = of.left == 0 ? 0 : of.piece.size();
    if (of.left > 0) --of.left;
    return of.left == 0 ? of.status : PLIANT_OK;
  }
  static int32_t take(void* context, const void*, uint64_t) { return static_cast<const Ends*>(context)->status; }
};

int32_t analyse(Player& p) {
  Ends ends(p);
  auto* const analysis = p.room<pliant_length_analysis_t>();
  if (analysis != nullptr) {
    analysis->count = p.once_in(6) ? -1 : static_cast<int64_t>(1 + p.below(40));
    analysis->length_of = p.once_in(9) ? nullptr : &Ends::length_of;
    analysis->progress = p.once_in(2) ? nullptr : &Ends::progress;
    analysis->context = &ends;
    analysis->identity = p.once_in(6) ? p.text() : "lengths by the player";
    analysis->threads = static_cast<int64_t>(p.below(3));
  }
  const std::string file = (run_folder() / ("measured-" + std::to_string(p.below(99)) + ".npy")).string();
  return pliant_analyse_lengths(p.once_in(9) ? nullptr : file.c_str(), analysis,
                                p.once_in(2) ? nullptr : p.room<pliant_analysed_lengths_t>(), p.error());
}

int32_t import_config(Player& p) {
  std::string json = R"({"elasticity": {"enabled": true, "max_train_batch_size": 64, "micro_batch_sizes": [2, 4],)"
                     R"( "min_gpus": 1, "max_gpus": 8, "version": 0.1}, "fp16": {"enabled": true}})";
  if (p.once_in(3)) json[p.below(json.size())] = static_cast<char>(p.below(256));
  if (p.once_in(9)) json.resize(p.below(json.size()));
  return pliant_import_deepspeed(json.data(), json.size(), p.text(), p.text(), p.place<pliant_imported_t>(), p.error());
}

/// An update of arrays that do not overlap, or do.
const pliant_adamw_t* some_update(Player& p) {
  static std::array<std::array<float, 64>, 4> arrays;
  auto* const update = p.room<pliant_adamw_t>();
  if (update == nullptr) return nullptr;
  const auto any = [&p] { return p.once_in(12) ? nullptr : arrays[p.below(arrays.size())].data(); };
  const bool is_right = !p.once_in(3);
  update->beta1 = 0.5F;
  update->epsilon = 1e-8F;
  update->weights = is_right ? arrays[0].data() : any();
  update->gradient = is_right ? arrays[1].data() : any();
  update->first_moment = is_right ? arrays[2].data() : any();
  update->second_moment = is_right ? arrays[3].data() : any();
  update->count = p.count();
  return update;
}

struct Norms {
  explicit Norms(Player& p) : count(p.count()), parts{p.once_in(3) ? p.count() : count / 2, count - count / 2} {}
  uint64_t count;
  std::array<uint64_t, 2> parts;
  std::array<float, Player::kIntegers> floats{};
};

int32_t norm(Player& p) {
  const Norms of(p);
  return pliant_squared_norm(p.once_in(9) ? nullptr : of.floats.data(), of.count, of.parts.data(), p.once_in(2) ? 2 : 0,
                             p.value<double>(), p.error());
}

int32_t norm_on_stream(Player& p) {
  const Norms of(p);
  return p.settled(pliant_stream_squared_norm(p.handle<pliant_stream_t>(), p.once_in(9) ? nullptr : of.floats.data(),
                                              of.count, of.parts.data(), p.once_in(2) ? 2 : 0, p.value<double>(),
                                              p.error()));
}

int32_t norms(Player& p, bool on_stream) {
  const Norms of(p);
  double* const to = p.value<double>();
  if (!on_stream) return pliant_squared_norms(to, of.floats.data(), of.count, p.error());
  return p.settled(pliant_stream_squared_norms(p.handle<pliant_stream_t>(), to, of.floats.data(), of.count, p.error()));
}

/// What one handle of the kind saves, whole, cut or changed.
template <class Handle>
std::string some_state(Player& p, int32_t (*save)(Handle*, char*, uint64_t, uint64_t*, pliant_error_t*)) {
  std::string saved(4096, '\0');
  uint64_t bytes = 0;
  if (save(p.handle<Handle>(), saved.data(), saved.size(), &bytes, nullptr) != PLIANT_OK) return "none";
  saved.resize(bytes);
  if (p.once_in(3)) saved.resize(p.below(saved.size() + 1));
  if (p.once_in(3) && !saved.empty()) saved[p.below(saved.size())] ^= static_cast<char>(p.below(256));
  return saved;
}

int32_t open_batches(Player& p) {
  const std::string saved = some_state<pliant_batches_t>(p, &pliant_batches_save);
  return pliant_batches_open(p.handle<pliant_config_t>(), p.handle<pliant_plan_t>(), p.handle<pliant_dataset_t>(),
                             saved.data(), saved.size(), p.place<pliant_batches_t>(), p.error());
}

template <class Handle>
int32_t load(Player& p, int32_t (*save)(Handle*, char*, uint64_t, uint64_t*, pliant_error_t*),
             int32_t (*to)(Handle*, const char*, uint64_t, pliant_error_t*)) {
  const std::string saved = some_state<Handle>(p, save);
  return to(p.handle<Handle>(), saved.data(), saved.size(), p.error());
}

int32_t make_micro_batches(Player& p) {
  std::vector<const pliant_batch_t*> batches(p.below(3));
  for (const auto*& batch : batches) batch = p.handle<pliant_batch_t>();
  auto* const layout = p.once_in(2) ? p.numbers<pliant_layout_t>() : p.room<pliant_layout_t>();
  return pliant_micro_batches_make(batches.data(), batches.size(), layout, p.once_in(2) ? p.number() : 0,
                                   p.place<pliant_micro_batches_t>(), p.error());
}

pliant_sharing_t* some_sharing(Player& p) {
  auto* const sharing = p.numbers<pliant_sharing_t>();
  // More ranks than there is memory for are no question of the border.
  if (sharing != nullptr && sharing->world_size > 4096) sharing->world_size = 4096;
  return sharing;
}

int32_t set_sink(Player& p) {
  const auto sink = [](void*, int32_t, const char*, const char*) {};
  return pliant_set_log_sink(p.once_in(2) ? nullptr : +sink, nullptr, static_cast<int32_t>(p.small()), p.error());
}

/// An id of one rank: ranks that never come are waited for. Used once; zeros where there is none.
std::array<uint8_t, PLIANT_COMMUNICATOR_ID_BYTES> fresh_id(const pliant_accelerator_t* accelerator) {
  std::array<uint8_t, PLIANT_COMMUNICATOR_ID_BYTES> id{};
  if (pliant_communicator_make_id(accelerator, 1, id.data(), nullptr) != PLIANT_OK) id = {};
  return id;
}

/// By make or join: alone, or with numbers that are none.
int32_t make_communicator(Player& p, decltype(&pliant_communicator_make) make) {
  const pliant_accelerator_t* const accelerator = p.handle<pliant_accelerator_t>();
  const auto id = fresh_id(accelerator);
  const bool is_known = id != decltype(id){};
  const int32_t ranks = is_known && !p.once_in(6) ? 1 : -static_cast<int32_t>(p.below(3));
  return make(accelerator, p.device(), p.once_in(9) ? nullptr : id.data(), p.once_in(9) ? 1 : 0, ranks,
              p.place<pliant_communicator_t>(), p.error());
}

int32_t shrink(Player& p) {
  const std::array<int32_t, 2> without{p.device(), 1};
  const std::array<uint8_t, PLIANT_COMMUNICATOR_ID_BYTES> id{};
  return pliant_communicator_shrink(p.handle<pliant_communicator_t>(), without.data(), p.below(3), id.data(),
                                    p.place<pliant_communicator_t>(), p.error());
}

int32_t grow(Player& p) {
  const std::array<uint8_t, PLIANT_COMMUNICATOR_ID_BYTES> id{};
  return pliant_communicator_grow(p.handle<pliant_communicator_t>(), id.data(), 1 - static_cast<int32_t>(p.below(3)),
                                  p.place<pliant_communicator_t>(), p.error());
}

int32_t make_id(Player& p, bool of_group) {
  std::array<uint8_t, PLIANT_COMMUNICATOR_ID_BYTES> id{};
  uint8_t* const to = p.once_in(9) ? nullptr : id.data();
  const auto ranks = static_cast<int32_t>(p.small());
  if (of_group) return pliant_communicator_make_grow_id(p.handle<pliant_communicator_t>(), ranks, to, p.error());
  return pliant_communicator_make_id(p.handle<pliant_accelerator_t>(), ranks, to, p.error());
}

/// Up to three pieces, mostly of the rank that there is, ascending or not.
struct Pieces {
  explicit Pieces(Player& p) : count(p.below(4)) {
    for (int32_t& rank : ranks) rank = p.device();
    uint64_t end = 0;
    for (size_t i = 0; i < parts.size(); i += 2) {
      parts[i] = p.once_in(6) ? p.below(9) : end + p.below(3);
      parts[i + 1] = p.below(5);
      end = parts[i] + parts[i + 1];
    }
  }
  uint64_t count;
  std::array<int32_t, 3> ranks{};
  std::array<uint64_t, 6> parts{};
};

int32_t gather(Player& p) {
  const Pieces pieces(p);
  return p.settled(pliant_communicator_gather_pieces(
      p.handle<pliant_communicator_t>(), p.once_in(2) ? nullptr : p.from_stream(), p.to_stream(), pieces.ranks.data(),
      pieces.parts.data(), pieces.count, p.dtype(), p.handle<pliant_stream_t>(), p.error()));
}

int32_t scatter(Player& p) {
  const Pieces pieces(p);
  const std::array<uint8_t, 2> adds{1, 0};
  return p.settled(pliant_communicator_scatter_pieces(
      p.handle<pliant_communicator_t>(), p.from_stream(), p.to_stream(), pieces.ranks.data(), pieces.parts.data(),
      pieces.count, adds.data(), p.once_in(6) ? 2 : 1, p.dtype(), p.handle<pliant_stream_t>(), p.error()));
}

int32_t gather_v(Player& p) {
  const std::array<uint64_t, 2> counts{p.count(), 1};
  return p.settled(pliant_communicator_all_gather_v(p.handle<pliant_communicator_t>(), p.from_stream(), p.to_stream(),
                                                    counts.data(), p.once_in(6) ? 2 : 1, p.dtype(),
                                                    p.handle<pliant_stream_t>(), p.error()));
}

int32_t reduce(Player& p) {
  const std::array<const void*, 2> from{p.from_stream(), p.from_stream()};
  return p.settled(pliant_stream_reduce(p.handle<pliant_stream_t>(), p.to_stream(), from.data(), p.below(3), p.count(),
                                        p.dtype(), p.op(), p.real(), p.error()));
}

/// Of work on streams, which has run when the call was played.
#define WORK(function, ...)                                                           \
  {                                                                                   \
#function, [](Player & p) { return p.settled(function(__VA_ARGS__, p.error())); } \
  }
#define FREE(function)                                      \
  {                                                         \
#function, [](Player & p) { return p.free(&function); } \
  }

Calls calls_of_data_and_devices() {
  return {
      {"pliant_check_version", [](Player& p) { return pliant_check_version(static_cast<uint32_t>(p.number())); }},
      {"pliant_version", [](Player&) { return *pliant_version() != '\0' ? PLIANT_OK : PLIANT_INTERNAL; }},
      {"pliant_last_message",
       [](Player& p) { return pliant_last_message(p.value<uint64_t>()) != nullptr ? PLIANT_OK : PLIANT_INTERNAL; }},
      {"pliant_set_log_sink", &set_sink},
      {"pliant_config_open", &open_file},
      {"pliant_config_parse", &parse},
      FREE(pliant_config_free),
      PLIANT_CALL(pliant_config_run, p.handle<pliant_config_t>(), p.room<pliant_run_options_t>()),
      PLIANT_CALL(pliant_config_app_int, p.handle<pliant_config_t>(), p.text(), p.number(), p.value<int64_t>()),
      PLIANT_CALL(pliant_config_app_float, p.handle<pliant_config_t>(), p.text(), p.real(), p.value<double>()),
      PLIANT_CALL(pliant_config_app_bool, p.handle<pliant_config_t>(), p.text(), 1, p.value<int32_t>()),
      PLIANT_CALL(pliant_config_app_text, p.handle<pliant_config_t>(), p.text(), p.text(), p.value<const char*>()),
      {"pliant_config_check_app",
       [](Player& p) {
         const bool is_right = p.once_in(2);
         const std::vector<const char*> keys{is_right ? "width" : p.text(), is_right ? "name" : p.text()};
         return pliant_config_check_app(p.handle<pliant_config_t>(), keys.data(), is_right ? 2 : p.below(3), p.error());
       }},
      PLIANT_CALL(pliant_config_resolved, p.handle<pliant_config_t>(), p.value<const char*>(), p.value<uint64_t>()),
      PLIANT_CALL(pliant_config_refuse_app, p.handle<pliant_config_t>(), p.text(), p.text()),
      PLIANT_CALL(pliant_config_has, p.handle<pliant_config_t>(), p.text(), p.value<int32_t>()),
      PLIANT_CALL(pliant_config_use, p.handle<pliant_config_t>(), p.once_in(2) ? "sampler" : p.text(),
                  p.value<const char*>()),
      {"pliant_config_with",
       [](Player& p) {
         const std::array<const char*, 2> sets{"run.seed=8", p.once_in(2) ? "run.epochs=3" : p.text()};
         return pliant_config_with(p.handle<pliant_config_t>(), sets.data(), p.below(3), p.place<pliant_config_t>(),
                                   p.error());
       }},
      PLIANT_CALL(pliant_config_data, p.handle<pliant_config_t>(), p.room<pliant_data_options_t>()),
      PLIANT_CALL(pliant_config_lr, p.handle<pliant_config_t>(), p.room<pliant_lr_options_t>()),
      {"pliant_import_deepspeed", &import_config},
      FREE(pliant_imported_free),
      PLIANT_CALL(pliant_imported_look, p.handle<pliant_imported_t>(), p.room<pliant_imported_view_t>()),
      PLIANT_CALL(pliant_plan_make, p.handle<pliant_config_t>(), p.once_in(4) ? p.number() : 0,
                  p.place<pliant_plan_t>()),
      PLIANT_CALL(pliant_check_scheduler, p.handle<pliant_config_t>()),
      PLIANT_CALL(pliant_dataset_read, some_name(p, lengths_file()), p.text(), p.place<pliant_dataset_t>()),
      {"pliant_analyse_lengths", &analyse},
      PLIANT_CALL(pliant_planner_make, p.handle<pliant_config_t>(), p.place<pliant_planner_t>()),
      FREE(pliant_planner_free),
      PLIANT_CALL(pliant_planner_look, p.handle<pliant_planner_t>(), p.room<pliant_planner_facts_t>()),
      PLIANT_CALL(pliant_planner_plan, p.handle<pliant_planner_t>(), p.once_in(4) ? p.number() : 0,
                  p.place<pliant_plan_t>()),
      FREE(pliant_plan_free),
      PLIANT_CALL(pliant_plan_look, p.handle<pliant_plan_t>(), p.room<pliant_plan_facts_t>()),
      PLIANT_CALL(pliant_plan_nearest, p.handle<pliant_plan_t>(), p.number(), p.value<int64_t>(), p.value<int64_t>()),
      PLIANT_CALL(pliant_share_of, p.number(), p.number(), p.number(), p.number(), p.value<int64_t>(),
                  p.value<int64_t>()),
      {"pliant_dataset_make", &make_dataset},
      PLIANT_CALL(pliant_dataset_load, p.handle<pliant_config_t>(), p.place<pliant_dataset_t>()),
      FREE(pliant_dataset_free),
      PLIANT_CALL(pliant_dataset_look, p.handle<pliant_dataset_t>(), p.room<pliant_lengths_t>()),
      PLIANT_CALL(pliant_batches_make, p.handle<pliant_config_t>(), p.handle<pliant_plan_t>(),
                  p.handle<pliant_dataset_t>(), p.place<pliant_batches_t>()),
      {"pliant_batches_open", &open_batches},
      FREE(pliant_batches_free),
      PLIANT_CALL(pliant_batches_next, p.handle<pliant_batches_t>(), p.place<pliant_batch_t>()),
      PLIANT_CALL(pliant_batches_at_step, p.handle<pliant_batches_t>(), p.number(), p.place<pliant_batch_t>()),
      PLIANT_CALL(pliant_batches_batch, p.handle<pliant_batches_t>(), p.number(), p.number(),
                  p.place<pliant_batch_t>()),
      PLIANT_CALL(pliant_batches_rows, p.handle<pliant_batches_t>(), p.number(), p.number(), p.number(),
                  p.place<pliant_batch_t>()),
      PLIANT_CALL(pliant_batches_has_step, p.handle<pliant_batches_t>(), p.small(), p.value<int32_t>()),
      PLIANT_CALL(pliant_batches_seek, p.handle<pliant_batches_t>(), p.once_in(4) ? p.number() : p.small()),
      PLIANT_CALL(pliant_batches_truncated, p.handle<pliant_batches_t>(), p.number(), p.integers(), Player::kIntegers,
                  p.value<uint64_t>()),
      PLIANT_CALL(pliant_batches_packing, p.handle<pliant_batches_t>(), p.number(), p.room<pliant_packing_t>()),
      PLIANT_CALL(pliant_batches_epoch, p.handle<pliant_batches_t>(), p.number(), p.room<pliant_epoch_summary_t>()),
      PLIANT_CALL(pliant_batches_dropped, p.handle<pliant_batches_t>(), p.number(), p.integers(), Player::kIntegers,
                  p.value<uint64_t>()),
      PLIANT_CALL(pliant_batches_look, p.handle<pliant_batches_t>(), p.room<pliant_job_facts_t>()),
      PLIANT_CALL(pliant_batches_job_length, p.handle<pliant_batches_t>(), p.value<int64_t>(),
                  p.room<pliant_batch_size_t>()),
      PLIANT_CALL(pliant_batches_save, p.handle<pliant_batches_t>(), nullptr, p.below(900), p.value<uint64_t>()),
      {"pliant_batches_load",
       [](Player& p) { return load<pliant_batches_t>(p, &pliant_batches_save, &pliant_batches_load); }},
      PLIANT_CALL(pliant_batch_look, p.handle<pliant_batch_t>(), p.room<pliant_batch_view_t>()),
      PLIANT_CALL(pliant_batch_size, p.handle<pliant_batch_t>(), p.room<pliant_batch_size_t>()),
      FREE(pliant_batch_free),
      {"pliant_micro_batches_make", &make_micro_batches},
      PLIANT_CALL(pliant_micro_batches_of_rows, p.handle<pliant_batch_t>(), p.number(), p.number(),
                  p.numbers<pliant_layout_t>(), p.place<pliant_micro_batches_t>()),
      FREE(pliant_micro_batches_free),
      PLIANT_CALL(pliant_micro_batches_look, p.handle<pliant_micro_batches_t>(), p.room<pliant_micro_batches_view_t>()),
      PLIANT_CALL(pliant_balancer_make, p.handle<pliant_config_t>(), p.place<pliant_balancer_t>()),
      FREE(pliant_balancer_free),
      PLIANT_CALL(pliant_balancer_look, p.handle<pliant_balancer_t>(), p.room<pliant_balancer_facts_t>()),
      PLIANT_CALL(pliant_row_costs, p.handle<pliant_batch_t>(), p.number(), p.number(), p.integers(), p.count(),
                  p.value<uint64_t>()),
      PLIANT_CALL(pliant_balancer_assign, p.handle<pliant_balancer_t>(), p.integers(), p.count(), some_sharing(p),
                  p.place<pliant_assignment_t>()),
      PLIANT_CALL(pliant_share_out, p.small(), some_sharing(p), p.place<pliant_assignment_t>()),
      FREE(pliant_assignment_free),
      PLIANT_CALL(pliant_assignment_look, p.handle<pliant_assignment_t>(), p.room<pliant_assignment_view_t>()),
      PLIANT_CALL(pliant_assignment_waiting, p.handle<pliant_assignment_t>(), p.integers(), p.count(),
                  p.room<pliant_waiting_t>()),
      PLIANT_CALL(pliant_learning_rate_make, p.handle<pliant_config_t>(), p.numbers<pliant_batch_size_t>(),
                  p.place<pliant_learning_rate_t>()),
      FREE(pliant_learning_rate_free),
      PLIANT_CALL(pliant_learning_rate_needs, p.handle<pliant_learning_rate_t>(), p.value<uint32_t>()),
      PLIANT_CALL(pliant_learning_rate_set_job_length, p.handle<pliant_learning_rate_t>(), p.number(),
                  p.numbers<pliant_batch_size_t>()),
      PLIANT_CALL(pliant_learning_rate_scaling, p.handle<pliant_learning_rate_t>(), p.number(),
                  p.numbers<pliant_batch_size_t>(), p.real(), p.room<pliant_scaling_t>()),
      PLIANT_CALL(pliant_learning_rate_commit, p.handle<pliant_learning_rate_t>(), p.number(),
                  p.numbers<pliant_batch_size_t>(), p.numbers<pliant_gradient_norms_t>(), p.real()),
      PLIANT_CALL(pliant_learning_rate_save, p.handle<pliant_learning_rate_t>(), nullptr, p.below(900),
                  p.value<uint64_t>()),
      {"pliant_learning_rate_load",
       [](Player& p) {
         return load<pliant_learning_rate_t>(p, &pliant_learning_rate_save, &pliant_learning_rate_load);
       }},
      PLIANT_CALL(pliant_record_begin, p.handle<pliant_config_t>(), p.handle<pliant_plan_t>(),
                  p.handle<pliant_batches_t>(), p.place<pliant_record_t>()),
      {"pliant_record_open", &open_record},
      FREE(pliant_record_free),
      PLIANT_CALL(pliant_record_look, p.handle<pliant_record_t>(), p.room<pliant_record_facts_t>()),
      PLIANT_CALL(pliant_record_start_generation, p.handle<pliant_record_t>(), p.small(), p.text()),
      {"pliant_record_commit", &commit},
      PLIANT_CALL(pliant_record_keep_snapshot, p.handle<pliant_record_t>(), p.integers(), p.count(), nullptr,
                  p.below(2)),
      PLIANT_CALL(pliant_record_restore, p.handle<pliant_record_t>(), p.room<pliant_restored_t>()),
      {"pliant_record_keep_pieces",
       [](Player& p) {
         Ends ends(p);
         return pliant_record_keep_pieces(p.handle<pliant_record_t>(), p.once_in(9) ? nullptr : &Ends::next, &ends,
                                          nullptr, p.below(2), p.error());
       }},
      {"pliant_record_restore_pieces",
       [](Player& p) {
         Ends ends(p);
         return pliant_record_restore_pieces(p.handle<pliant_record_t>(), p.once_in(9) ? nullptr : &Ends::take, &ends,
                                             p.room<pliant_restored_t>(), p.error());
       }},
      PLIANT_CALL(pliant_audit_run, some_name(p, some_run(p)), p.room<pliant_audit_t>()),
      PLIANT_CALL(pliant_report_run, some_name(p, some_run(p)), p.place<pliant_report_t>()),
      FREE(pliant_report_free),
      PLIANT_CALL(pliant_report_look, p.handle<pliant_report_t>(), p.room<pliant_report_view_t>()),
      PLIANT_CALL(pliant_compare_runs, some_name(p, some_run(p)), some_name(p, some_run(p)),
                  p.place<pliant_comparison_t>()),
      FREE(pliant_comparison_free),
      {"pliant_export_snapshot", &export_snapshot},
      PLIANT_CALL(pliant_comparison_look, p.handle<pliant_comparison_t>(), p.room<pliant_comparison_view_t>()),
      PLIANT_CALL(pliant_adamw, some_update(p)),
      WORK(pliant_stream_adamw, p.handle<pliant_stream_t>(), some_update(p)),
      {"pliant_squared_norm", &norm},
      {"pliant_stream_squared_norm", &norm_on_stream},
      {"pliant_squared_norms", [](Player& p) { return norms(p, false); }},
      {"pliant_stream_squared_norms", [](Player& p) { return norms(p, true); }},
      {"pliant_sum_of_norms",
       [](Player& p) {
         const std::array<double, 3> chunks{p.real(), p.real(), p.real()};
         return pliant_sum_of_norms(p.once_in(9) ? nullptr : chunks.data(), p.below(4), p.value<double>(), p.error());
       }},
      {"pliant_leave_stop_signals_to_agent", [](Player&) { return pliant_leave_stop_signals_to_agent(); }},
      {"pliant_pass_stop_signal", [](Player& p) { return pliant_pass_stop_signal(static_cast<int32_t>(p.small())); }},
      PLIANT_CALL(pliant_log_to_stderr, static_cast<int32_t>(p.small()) | 8),
      PLIANT_CALL(pliant_accelerator_make, p.handle<pliant_config_t>(), p.place<pliant_accelerator_t>()),
      FREE(pliant_accelerator_free),
      PLIANT_CALL(pliant_accelerator_look, p.handle<pliant_accelerator_t>(), p.room<pliant_accelerator_facts_t>()),
      PLIANT_CALL(pliant_accelerator_device, p.handle<pliant_accelerator_t>(), p.device(), p.room<pliant_device_t>()),
      PLIANT_CALL(pliant_buffer_make, p.handle<pliant_accelerator_t>(), p.device(), p.below(9000), p.dtype(),
                  p.place<pliant_buffer_t>()),
      FREE(pliant_buffer_free),
      PLIANT_CALL(pliant_buffer_look, p.handle<pliant_buffer_t>(), p.value<void*>(), p.value<uint64_t>()),
      PLIANT_CALL(pliant_stream_make, p.handle<pliant_accelerator_t>(), p.device(), p.op(), p.device(),
                  p.place<pliant_stream_t>()),
      FREE(pliant_stream_free),
      PLIANT_CALL(pliant_stream_synchronize, p.handle<pliant_stream_t>()),
      PLIANT_CALL(pliant_stream_is_idle, p.handle<pliant_stream_t>(), p.value<int32_t>()),
      WORK(pliant_stream_copy, p.handle<pliant_stream_t>(), p.to_stream(), p.from_stream(), p.count()),
      WORK(pliant_stream_fill, p.handle<pliant_stream_t>(), p.to_stream(), 7, p.count()),
      {"pliant_stream_reduce", &reduce},
      WORK(pliant_stream_cast, p.handle<pliant_stream_t>(), p.to_stream(), p.dtype(), p.from_stream(), p.dtype(),
           p.count()),
      PLIANT_CALL(pliant_event_make, p.handle<pliant_accelerator_t>(), p.device(), p.place<pliant_event_t>()),
      FREE(pliant_event_free),
      WORK(pliant_event_record, p.handle<pliant_event_t>(), p.handle<pliant_stream_t>()),
      WORK(pliant_stream_wait, p.handle<pliant_stream_t>(), p.handle<pliant_event_t>()),
      PLIANT_CALL(pliant_event_synchronize, p.handle<pliant_event_t>()),
      {"pliant_communicator_make_id", [](Player& p) { return make_id(p, false); }},
      {"pliant_communicator_make", [](Player& p) { return make_communicator(p, &pliant_communicator_make); }},
      FREE(pliant_communicator_free),
      PLIANT_CALL(pliant_communicator_look, p.handle<pliant_communicator_t>(), p.value<int32_t>(), p.value<int32_t>()),
      PLIANT_CALL(pliant_communicator_wait_ready, p.handle<pliant_communicator_t>(), p.dtype() - 1),
      PLIANT_CALL(pliant_communicator_abort,
                  p.is_careful() || p.once_in(4) ? p.handle<pliant_communicator_t>() : nullptr),
      {"pliant_communicator_shrink", &shrink},
      {"pliant_communicator_make_grow_id", [](Player& p) { return make_id(p, true); }},
      {"pliant_communicator_grow", &grow},
      {"pliant_communicator_join", [](Player& p) { return make_communicator(p, &pliant_communicator_join); }},
      WORK(pliant_communicator_register_window, p.handle<pliant_communicator_t>(), p.to_stream(), p.count(),
           p.handle<pliant_stream_t>()),
      WORK(pliant_communicator_all_reduce, p.handle<pliant_communicator_t>(), p.from_stream(), p.to_stream(), p.count(),
           p.dtype(), p.op(), p.handle<pliant_stream_t>()),
      WORK(pliant_communicator_all_gather, p.handle<pliant_communicator_t>(), p.from_stream(), p.to_stream(), p.count(),
           p.dtype(), p.handle<pliant_stream_t>()),
      {"pliant_communicator_all_gather_v", &gather_v},
      WORK(pliant_communicator_reduce_scatter, p.handle<pliant_communicator_t>(), p.from_stream(), p.to_stream(),
           p.count(), p.dtype(), p.op(), p.handle<pliant_stream_t>()),
      WORK(pliant_communicator_broadcast, p.handle<pliant_communicator_t>(), p.to_stream(), p.count(), p.dtype(),
           p.device(), p.handle<pliant_stream_t>()),
      WORK(pliant_communicator_barrier, p.handle<pliant_communicator_t>(), p.handle<pliant_stream_t>()),
      {"pliant_communicator_gather_pieces", &gather},
      {"pliant_communicator_scatter_pieces", &scatter},
      WORK(pliant_communicator_send, p.handle<pliant_communicator_t>(), p.from_stream(), 8, p.dtype(), p.device(),
           p.handle<pliant_stream_t>()),
      WORK(pliant_communicator_receive, p.handle<pliant_communicator_t>(), p.to_stream(), 8, p.dtype(), p.device(),
           p.handle<pliant_stream_t>()),
      PLIANT_CALL(pliant_communicator_begin_group, p.handle<pliant_communicator_t>()),
      WORK(pliant_communicator_end_group, p.handle<pliant_communicator_t>()),
  };
}

const Calls& calls() {
  static const Calls kAll = [] {
    Calls made = calls_of_data_and_devices();
    // Outside of a job there is no session to be had, and so no sharded model.
    made.insert(pliant::test::job_calls().begin(), pliant::test::job_calls().end());
    return made;
  }();
  return kAll;
}

uint64_t rounds(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// What most calls begin with.
const std::vector<std::string>& beginnings() {
  static const std::vector<std::string> names{
      "pliant_config_parse",       "pliant_planner_make",     "pliant_planner_plan",  "pliant_dataset_make",
      "pliant_batches_make",       "pliant_batches_next",     "pliant_balancer_make", "pliant_micro_batches_make",
      "pliant_learning_rate_make", "pliant_accelerator_make", "pliant_stream_make",   "pliant_communicator_make"};
  return names;
}

/// The status of one call, which is one of the header.
int32_t play(const std::string& name, Player& player) {
  INFO("call " << name);
  const int32_t status = calls().at(name)(player);
  player.keep();
  CHECK(status >= PLIANT_OK);
  CHECK(status <= PLIANT_DEADLINE_EXCEEDED);
  // A rule that makes no finite rate of no finite numbers breaks its contract.
  CHECK((status != PLIANT_INTERNAL || name.find("learning_rate") != std::string::npos));
  return status;
}

bool can_be_answered(const std::string& name) {
  // Those are answered within a job: job_fuzz_test.cpp.
  const bool is_of_job = name.rfind("pliant_session_", 0) == 0 || name.rfind("pliant_sharded_", 0) == 0;
  const bool needs_job =
      is_of_job && name != "pliant_session_free" && name != "pliant_sharded_free" && name != "pliant_sharded_check";
  // One rank alone cannot shrink or grow, and has messages in a group only.
  const bool needs_peers = name == "pliant_communicator_shrink" || name == "pliant_communicator_grow" ||
                           name == "pliant_communicator_send" || name == "pliant_communicator_receive" ||
                           name == "pliant_communicator_register_window";
  const bool would_print = name == "pliant_log_to_stderr";
  const bool always_fails = name == "pliant_config_refuse_app";
  return !needs_job && !needs_peers && !would_print && !always_fails;
}

/// Until it is answered, with arguments that are mostly right; false where it never is.
bool is_answered(const std::string& name, uint64_t seed) {
  constexpr uint64_t kTries = 300;
  for (uint64_t i = 0; i < kTries; ++i) {
    Player player(seed + i);
    player.be_careful();
    for (const std::string& before : beginnings()) play(before, player);
    for (const char* const before : {"pliant_balancer_assign", "pliant_share_out", "pliant_record_begin",
                                     "pliant_buffer_make", "pliant_event_make", "pliant_record_commit",
                                     "pliant_import_deepspeed", "pliant_report_run", "pliant_compare_runs"}) {
      play(before, player);
    }
    if (name == "pliant_communicator_end_group") play("pliant_communicator_begin_group", player);
    if (play(name, player) == PLIANT_OK) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("every function of the C header is played") {
  const std::string text = pliant::test::read_all(std::string(PLIANT_SOURCE_DIR) + "/tests/capi/signatures.h");
  const std::regex function(R"((pliant_\w+)\((?!\*))");
  for (std::sregex_iterator at(text.begin(), text.end(), function), end; at != end; ++at) {
    CAPTURE((*at)[1].str());
    CHECK(calls().count((*at)[1]) == 1);
  }
}

TEST_CASE("calls of the C header in any order with any arguments are answered or refused, and each is answered once") {
  const uint64_t first = rounds("PLIANT_FUZZ_FIRST", 0);
  const uint64_t count = rounds("PLIANT_FUZZ_ROUNDS", 1000) / 10;
  std::set<std::string> answered;
  for (uint64_t round = first; round < first + count; ++round) {
    INFO("round " << round);
    Player player(round);
    std::vector<std::string> names;
    for (const std::string& name : beginnings()) names.insert(names.end(), 3, name);
    for (int i = 0; i < 100; ++i) {
      auto at = calls().begin();
      std::advance(at, static_cast<long>(player.below(calls().size())));
      names.push_back(at->first);
    }
    for (const std::string& name : names) {
      if (play(name, player) == PLIANT_OK) answered.insert(name);
    }
  }
  for (const auto& call : calls()) {
    if (!can_be_answered(call.first) || answered.count(call.first) > 0) continue;
    INFO(call.first << " was never answered");
    CHECK(is_answered(call.first, first));
  }
  pliant_set_log_sink(nullptr, nullptr, 0, nullptr);
}

TEST_CASE("every function of the C header is answered where its arguments are right, whatever the seed") {
  for (const uint64_t seed : {0U, 2700U}) {
    for (const auto& call : calls()) {
      if (!can_be_answered(call.first)) continue;
      CAPTURE(call.first);
      CHECK(is_answered(call.first, seed));
    }
  }
  pliant_set_log_sink(nullptr, nullptr, 0, nullptr);
}
