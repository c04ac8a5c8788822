// The border itself: errors, versions, structs of other versions, arrays that were lent.
#include <doctest/doctest.h>

#include <thread>

#include "c_handles.hpp"

using namespace pliant::test;

namespace {

const char* const kWrong = R"(
config_version = 1
[rum]
[elasticity]
use = "v0.1"
[elasticity."v0.1"]
max_gpu = 4
)";

int32_t parse(const std::string& toml, pliant_error_t* error, const pliant_config_options_t* options = nullptr) {
  pliant_config_t* config = nullptr;
  const int32_t status = pliant_config_parse(toml.data(), toml.size(), options, &config, error);
  CHECK((config == nullptr) == (status != PLIANT_OK));
  pliant_config_free(config);
  return status;
}

}  // namespace

TEST_CASE("the library serves programs of its own version and older ones, and says why not others") {
  CHECK(pliant_check_version(PLIANT_VERSION) == PLIANT_OK);
  CHECK(pliant_check_version(PLIANT_VERSION + 7) == PLIANT_OK);  // a patch
  CHECK(pliant_check_version(PLIANT_VERSION + 1000) == PLIANT_FAILED_PRECONDITION);
  CHECK(last_message().find("pliant.h " + std::to_string(PLIANT_VERSION_MAJOR) + ".") != std::string::npos);
  CHECK(pliant_check_version(PLIANT_VERSION + 1000000) == PLIANT_FAILED_PRECONDITION);
  CHECK(std::string(pliant_version()) == std::to_string(PLIANT_VERSION_MAJOR) + "." +
                                             std::to_string(PLIANT_VERSION_MINOR) + "." +
                                             std::to_string(PLIANT_VERSION_PATCH));
}

TEST_CASE("an error has status, exit code and the beginning of its text, and the last message is all findings") {
  pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
  options.needs = "elasticity";
  options.name = "job.toml";
  std::string toml = kWrong;
  for (int i = 0; i < 20; ++i) toml += "wrong_option_number_" + std::to_string(i) + " = 1\n";
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(parse(toml, &error, &options) == PLIANT_INVALID_ARGUMENT);
  CHECK(error.status == PLIANT_INVALID_ARGUMENT);
  CHECK(error.exit_code == 2);
  CHECK(error.rank == -1);
  uint64_t bytes = 0;
  const std::string whole = pliant_last_message(&bytes);
  CHECK(whole.size() == bytes);
  CHECK(error.message_bytes == bytes);
  CHECK(bytes > sizeof(error.message));
  CHECK(whole.rfind(error.message, 0) == 0);
  CHECK(whole.find("job.toml:3:") != std::string::npos);
  CHECK(whole.find("wrong_option_number_19") != std::string::npos);
}

TEST_CASE("a text that is cut ends with a whole character") {
  for (size_t blanks = 0; blanks < 4; ++blanks) {
    std::string name(blanks, ' ');
    for (int i = 0; i < 300; ++i) name += "€";
    pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
    options.name = name.c_str();
    pliant_error_t error = PLIANT_INIT(pliant_error_t);
    CHECK(parse(kWrong, &error, &options) == PLIANT_INVALID_ARGUMENT);
    const std::string text = error.message;
    CHECK(text.size() < sizeof(error.message));
    CHECK(text.size() > sizeof(error.message) - 4);
    CHECK((static_cast<unsigned char>(text.back()) & 0xC0U) == 0x80U);  // of the three bytes of the sign the last
    CHECK(text.substr(text.size() - 3) == "€");
  }
}

TEST_CASE("each thread has its own last message") {
  CHECK(parse(kWrong, nullptr) == PLIANT_INVALID_ARGUMENT);
  const std::string here = last_message();
  std::string there = "?";
  std::thread([&] {
    there = last_message();
    pliant_check_version(PLIANT_VERSION + 1000);
  }).join();
  CHECK(there.empty());
  CHECK(last_message() == here);
}

TEST_CASE("an error struct that knows fewer fields gets those") {
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  std::memset(&error, 0x5a, sizeof(error));
  error.struct_size = offsetof(pliant_error_t, rank);
  CHECK(parse(kWrong, &error) == PLIANT_INVALID_ARGUMENT);
  CHECK(error.status == PLIANT_INVALID_ARGUMENT);
  CHECK(error.exit_code == 2);
  CHECK(error.rank == 0x5a5a5a5a);
  error.struct_size = offsetof(pliant_error_t, message) + 8;
  CHECK(parse(kWrong, &error) == PLIANT_INVALID_ARGUMENT);
  CHECK(std::string(error.message).size() == 7);
  CHECK(error.message[8] == 0x5a);
}

TEST_CASE("of a struct one field short the missing field has its default, and an answer ends before it") {
  const CJob job;
  const OwnedBatch batch = job.at_step(0);
  pliant_layout_t layout = PLIANT_INIT(pliant_layout_t);
  layout.micro_batch = 4;
  layout.multiple = 8;
  layout.line = PLIANT_LINE_ROW;
  layout.pad_to = 77;  // none
  pliant_micro_batches_t* padded = nullptr;
  CHECK(pliant_micro_batches_make(std::vector<const pliant_batch_t*>{batch.get()}.data(), 1, &layout, 0, &padded,
                                  nullptr) == PLIANT_INVALID_ARGUMENT);
  layout.struct_size = offsetof(pliant_layout_t, pad_to);
  const pliant_batch_t* const one = batch.get();
  REQUIRE(pliant_micro_batches_make(&one, 1, &layout, 0, &padded, nullptr) == PLIANT_OK);

  pliant_micro_batches_view_t view = PLIANT_INIT(pliant_micro_batches_view_t);
  view.struct_size = offsetof(pliant_micro_batches_view_t, tokens);
  const int64_t untouched = 5;
  view.tokens = &untouched;
  REQUIRE(pliant_micro_batches_look(padded, &view, nullptr) == PLIANT_OK);
  CHECK(view.tokens == &untouched);
  CHECK(view.lengths[0] % 8 == 0);
  pliant_batch_size_t size = PLIANT_INIT(pliant_batch_size_t);
  REQUIRE(pliant_batch_size(batch.get(), &size, nullptr) == PLIANT_OK);
  CHECK(view.line_offsets[view.count] ==
        static_cast<uint64_t>(size.rows));  // a line for each row: the field before the missing one was read
  CHECK(pliant_micro_batches_free(padded) == PLIANT_OK);
}

TEST_CASE("a program of a later header is served until it sets a field that this library does not know") {
  struct LaterOptions {
    pliant_config_options_t known;
    uint64_t new_field;
  };
  LaterOptions options{};
  options.known.struct_size = sizeof(options);
  options.known.needs = kJobNeeds;
  CHECK(parse(kJob, nullptr, &options.known) == PLIANT_OK);
  options.new_field = 1;
  CHECK(parse(kJob, nullptr, &options.known) == PLIANT_UNIMPLEMENTED);
  CHECK(last_message().find("older than the header") != std::string::npos);
  options.known.flags = 1U << 20U;
  options.new_field = 0;
  CHECK(parse(kJob, nullptr, &options.known) == PLIANT_UNIMPLEMENTED);
}

TEST_CASE("a struct without its size is refused, read or written") {
  pliant_config_options_t options{};
  CHECK(parse(kJob, nullptr, &options) == PLIANT_INVALID_ARGUMENT);
  CHECK(last_message().find("PLIANT_INIT") != std::string::npos);
  options.struct_size = 0xdeadbeef;
  CHECK(parse(kJob, nullptr, &options) == PLIANT_INVALID_ARGUMENT);
  const OwnedConfig config = config_of(kJob);
  pliant_run_options_t run{};
  CHECK(pliant_config_run(config.get(), &run, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_config_run(config.get(), nullptr, nullptr) == PLIANT_INVALID_ARGUMENT);
}

TEST_CASE("options of the program are read by type, and texts stay until the config is freed") {
  const OwnedConfig config = config_of(kJob);
  int64_t width = 0;
  REQUIRE(pliant_config_app_int(config.get(), "width", 1, &width, nullptr) == PLIANT_OK);
  CHECK(width == 7);
  REQUIRE(pliant_config_app_int(config.get(), "height", 3, &width, nullptr) == PLIANT_OK);
  CHECK(width == 3);
  const char* name = nullptr;
  const char* again = nullptr;
  REQUIRE(pliant_config_app_text(config.get(), "name", nullptr, &name, nullptr) == PLIANT_OK);
  REQUIRE(pliant_config_app_text(config.get(), "name", nullptr, &again, nullptr) == PLIANT_OK);
  CHECK(std::string(name) == "mühe");
  CHECK(name == again);
  CHECK(pliant_config_app_int(config.get(), "name", 0, &width, nullptr) == PLIANT_INVALID_ARGUMENT);
  const std::vector<const char*> keys{"width"};
  CHECK(pliant_config_check_app(config.get(), keys.data(), keys.size(), nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(last_message().find("name") != std::string::npos);
  const char* toml = nullptr;
  uint64_t bytes = 0;
  REQUIRE(pliant_config_resolved(config.get(), &toml, &bytes, nullptr) == PLIANT_OK);
  CHECK(parse({toml, bytes}, nullptr) == PLIANT_OK);
}

TEST_CASE("lent lengths are not copied, and given back once, when the last that was made of them is freed") {
  const std::vector<int32_t> lengths = some_lengths();
  int released = 0;
  pliant_lengths_t given = PLIANT_INIT(pliant_lengths_t);
  given.count = lengths.size();
  given.lengths = lengths.data();
  given.loss_tokens = lengths.data();
  given.release = [](void* context) { ++*static_cast<int*>(context); };
  given.context = &released;
  const OwnedConfig config = config_of(kJob);
  auto dataset = made_by<OwnedDataset>([&](auto to, auto error) { return pliant_dataset_make(&given, to, error); });
  pliant_lengths_t seen = PLIANT_INIT(pliant_lengths_t);
  REQUIRE(pliant_dataset_look(dataset.get(), &seen, nullptr) == PLIANT_OK);
  CHECK(seen.lengths == lengths.data());
  OwnedBatches batches = batches_of(config.get(), dataset.get());
  OwnedBatch batch =
      made_by<OwnedBatch>([&](auto to, auto error) { return pliant_batches_next(batches.get(), to, error); });
  dataset.reset();
  batches.reset();
  CHECK(released == 0);
  batch.reset();
  CHECK(released == 1);
}

TEST_CASE("lengths that were refused are not given back") {
  int released = 0;
  pliant_lengths_t given = PLIANT_INIT(pliant_lengths_t);
  given.count = 3;
  given.release = [](void* context) { ++*static_cast<int*>(context); };
  given.context = &released;
  pliant_dataset_t* dataset = nullptr;
  CHECK(pliant_dataset_make(&given, &dataset, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(dataset == nullptr);
  CHECK(released == 0);
}

TEST_CASE("log lines go to the program's sink, as C texts, until it is taken away") {
  struct Seen {
    std::string all;
  } seen;
  REQUIRE(pliant_set_log_sink(
              [](void* context, int32_t level, const char* logger, const char* line) {
                static_cast<Seen*>(context)->all += std::to_string(level) + " " + logger + " " + line + "\n";
              },
              &seen, PLIANT_LEVEL_DEBUG, nullptr) == PLIANT_OK);
  const CJob job;
  CHECK(pliant_set_log_sink(nullptr, nullptr, 0, nullptr) == PLIANT_OK);
  CHECK(pliant_set_log_sink(nullptr, nullptr, 9, nullptr) == PLIANT_INVALID_ARGUMENT);
}
