// The messages survive the wire, and nonsense does not.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "elastic/message.hpp"

using pliant::Origin;
using namespace pliant::elastic;

TEST_CASE("a vote keeps all 64 bits of its digest and every double exactly") {
  Vote vote{3, 41, 0xFEDCBA9876543210ULL, 0.1 + 0.2, 12345678901, 1e-300};
  const auto back = parse_from_worker(to_line(vote));
  REQUIRE(back);
  const auto& got = std::get<Vote>(*back);
  CHECK(got.digest == vote.digest);
  CHECK(got.loss_sum == vote.loss_sum);
  CHECK(got.loss_tokens == vote.loss_tokens);
  CHECK(got.learning_rate == vote.learning_rate);
  vote.loss_sum = -0.0;
  CHECK(std::signbit(std::get<Vote>(*parse_from_worker(to_line(vote))).loss_sum));
}

TEST_CASE("the time of a share and the rates of a balancer travel exactly") {
  Vote vote;
  vote.share = {int64_t{1} << 61, 0x1.fffffffffffffp85, 123456789};
  const auto heard = parse_from_worker(to_line(vote));
  REQUIRE(heard);
  CHECK(std::get<Vote>(*heard).share.tokens == vote.share.tokens);
  CHECK(std::get<Vote>(*heard).share.squares == vote.share.squares);
  CHECK(std::get<Vote>(*heard).share.microseconds == vote.share.microseconds);
  Form form;
  form.rates = {int64_t{1} << 40, 44739243};
  const auto formed = parse_to_worker(to_line(form));
  REQUIRE(formed);
  CHECK(std::get<Form>(*formed).rates == form.rates);
  const auto commit = parse_to_worker(to_line(Commit{3, false, "", {7, 8}}));
  REQUIRE(commit);
  CHECK(std::get<Commit>(*commit).rates == pliant::CostRates{7, 8});
  const auto reducing = parse_from_worker(to_line(Reducing{1, 2, 0xFEDCBA9876543210ULL, 0xFEDCBA9876543211ULL}));
  REQUIRE(reducing);
  CHECK(std::get<Reducing>(*reducing).assignment == 0xFEDCBA9876543210ULL);
  CHECK(std::get<Reducing>(*reducing).rows == 0xFEDCBA9876543211ULL);
}

TEST_CASE("what plugins answer travels exactly, and which files they are of") {
  Vote vote{3, 41};
  vote.scaling = {0.1 + 0.2, 1e-300, -0x1.fffffffffffffp1023};
  CHECK(std::get<Vote>(*parse_from_worker(to_line(vote))).scaling == vote.scaling);
  Ready ready{"data"};
  ready.plugins = {"sampler fixed 0.1.0 00ff", "lr sqrt 0.1.0 unread"};
  CHECK(std::get<Ready>(*parse_from_worker(to_line(ready))).plugins == ready.plugins);
}

TEST_CASE("where a worker records what it does travels with its generation, and what it did with its vote") {
  CHECK(std::get<Form>(*parse_to_worker(to_line(Form{}))).trace.empty());
  Form form;
  form.trace = "logs/.trace-3";
  form.visits = "logs/.visits-3";
  CHECK(std::get<Form>(*parse_to_worker(to_line(form))).trace == form.trace);
  CHECK(std::get<Form>(*parse_to_worker(to_line(form))).visits == form.visits);
  Vote vote{3, 41};
  vote.visits = {17, 0xFEDCBA9876543210ULL};
  CHECK(std::get<Vote>(*parse_from_worker(to_line(vote))).visits == vote.visits);
}

TEST_CASE("what is not finite in a step travels, and the order to skip it") {
  Vote vote{3, 41};
  CHECK(std::get<Vote>(*parse_from_worker(to_line(vote))).finite);
  vote.finite = false;
  vote.not_finite = {{4, 2}, {9, 1}};
  const auto back = parse_from_worker(to_line(vote));
  REQUIRE(back);
  CHECK_FALSE(std::get<Vote>(*back).finite);
  CHECK(std::get<Vote>(*back).not_finite == vote.not_finite);
  Commit commit;
  commit.skip = true;
  CHECK(std::get<Commit>(*parse_to_worker(to_line(commit))).skip);
  CHECK_FALSE(std::get<Commit>(*parse_to_worker(to_line(commit))).compare);
}

TEST_CASE("what a worker holds travels with its digest, and who is to compare") {
  for (const bool compare : {true, false})
    CHECK(std::get<Tell>(*parse_to_worker(to_line(ToWorker(Tell{compare})))).compare == compare);
  const auto holds = parse_from_worker(to_line(Holds{26, true, 0xFEDCBA9876543210ULL}));
  REQUIRE(holds);
  CHECK(std::get<Holds>(*holds).step == 26);
  CHECK(std::get<Holds>(*holds).compared);
  CHECK(std::get<Holds>(*holds).state == 0xFEDCBA9876543210ULL);
  Commit commit;
  commit.compare = true;
  CHECK(std::get<Commit>(*parse_to_worker(to_line(commit))).compare);
  Form form;
  form.compare = true;
  CHECK(std::get<Form>(*parse_to_worker(to_line(form))).compare);
}

TEST_CASE("a part of a snapshot travels with the digests of its cut and of what is beside it") {
  const std::vector<uint64_t> digests{0, 0xFEDCBA9876543212ULL, UINT64_MAX};
  const auto part =
      parse_from_worker(to_line(PartWritten{26, "a", "", 7, 0xFEDCBA9876543210ULL, 0xFEDCBA9876543211ULL, digests}));
  REQUIRE(part);
  CHECK(std::get<PartWritten>(*part).digests == digests);
  CHECK(std::get<Assemble>(*parse_to_worker(to_line(Assemble{26, "a", digests}))).digests == digests);
  CHECK(std::get<PartWritten>(*part).generation == 7);
  CHECK(std::get<PartWritten>(*part).cut == 0xFEDCBA9876543210ULL);
  CHECK(std::get<PartWritten>(*part).beside == 0xFEDCBA9876543211ULL);
}

TEST_CASE("how the data set was written, and what a worker refuses, travel in fields") {
  CHECK(parse_to_worker(to_line(WriteData{})));
  const auto written = parse_from_worker(to_line(DataWritten{"no room", 5, Origin::kInput}));
  REQUIRE(written);
  CHECK(std::get<DataWritten>(*written).error == "no room");
  CHECK(std::get<DataWritten>(*written).status == 5);
  CHECK(std::get<DataWritten>(*written).origin == Origin::kInput);
  const auto refused = parse_from_worker(to_line(Refused{1, Origin::kPlugin, "budget prefetch"}));
  REQUIRE(refused);
  CHECK(std::get<Refused>(*refused) == Refused{1, Origin::kPlugin, "budget prefetch"});
  CHECK_FALSE(std::get<Refused>(*refused) == Refused{1, Origin::kPlugin, "budget"});
  CHECK_FALSE(std::get<Refused>(*refused) == Refused{1, Origin::kInput, "budget prefetch"});
}

TEST_CASE("metrics travel exactly, whatever they are, and what is none is no message") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<MetricShare> metrics{{"accuracy", pliant::MetricRule::kMean, {1e-300, 0.1}, {3}},
                                         {"nothing", pliant::MetricRule::kMean, {}, {}},
                                         {"most", pliant::MetricRule::kMax, {-infinity}, {}}};
  Vote vote{3, 41};
  vote.metrics = metrics;
  CHECK(std::get<Vote>(*parse_from_worker(to_line(vote))).metrics == metrics);
  const auto evaluated = parse_from_worker(to_line(Evaluated{40, metrics, 7}));
  REQUIRE(evaluated);
  CHECK(std::get<Evaluated>(*evaluated).step == 40);
  CHECK(std::get<Evaluated>(*evaluated).metrics == metrics);
  CHECK(std::get<Evaluated>(*evaluated).attempt == 7);
  for (const char* const bad : {R"(["x",9,0])", R"(["a b",0,0])", R"(["x",0,5,1.0])", R"(["x",0])", "7"}) {
    CAPTURE(bad);
    CHECK_FALSE(
        parse_from_worker(std::string(R"({"type":"evaluated","step":1,"attempt":-1,"metrics":[)") + bad + "]}"));
  }
}

TEST_CASE("what ranks found out travels to them with a commit, and why one asks for the end with its vote") {
  CHECK(std::get<Commit>(*parse_to_worker(to_line(Commit{}))).evaluation.step == -1);
  Commit commit;
  commit.evaluation = {40, 3, 1, {{"valid", 0.1}, {"worst", std::numeric_limits<double>::infinity()}}};
  const auto told = std::get<Commit>(*parse_to_worker(to_line(commit))).evaluation;
  CHECK(told.step == 40);
  CHECK(told.ranks == 3);
  CHECK(told.lost == 1);
  CHECK(told.values == commit.evaluation.values);
  Vote vote{3, 41};
  vote.end = "good enough";
  CHECK(std::get<Vote>(*parse_from_worker(to_line(vote))).end == "good enough");
}

TEST_CASE("what a worker is busy with travels, and for how long at most") {
  const auto busy = parse_from_worker(to_line(BusyWith{"evaluation of \"valid\"", 0.1 + 0.2}));
  REQUIRE(busy);
  CHECK(std::get<BusyWith>(*busy).what == "evaluation of \"valid\"");
  CHECK(std::get<BusyWith>(*busy).at_most_s == 0.1 + 0.2);
}

TEST_CASE("a loss that is not finite travels") {
  for (const double loss : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity()}) {
    const auto back = parse_from_worker(to_line(Vote{1, 1, 1, loss, 1, 0}));
    REQUIRE(back);
    const double got = std::get<Vote>(*back).loss_sum;
    CHECK((std::isnan(loss) ? std::isnan(got) : got == loss));
  }
}

TEST_CASE("a form carries its injections") {
  Form form;
  form.rank = 2;
  form.restore = "snapshots/step-00000020.snapshot";
  form.injections = {{0, 20, InjectionPoint::kApply}, {1, 30, InjectionPoint::kFinish, true}};
  const auto back = parse_to_worker(to_line(form));
  REQUIRE(back);
  const auto& got = std::get<Form>(*back);
  REQUIRE(got.injections.size() == 2);
  CHECK(got.injections[1].at == InjectionPoint::kFinish);
  CHECK(got.injections[1].stop);
  CHECK_FALSE(got.injections[0].stop);
  CHECK(got.restore == form.restore);
}

TEST_CASE("a map of owners travels whole, however long it is") {
  Form form;
  form.owners = std::string(200000, 'x');
  form.was = {0, -1, 2};
  form.stay = 2;
  const auto got = std::get<Form>(*parse_to_worker(to_line(form)));
  CHECK(got.owners == form.owners);
  CHECK(got.was == form.was);
  CHECK(got.stay == 2);
  Formed formed;
  formed.owners = form.owners;
  formed.bytes_moved = 12;
  const auto back = std::get<Formed>(*parse_from_worker(to_line(formed)));
  CHECK(back.owners == form.owners);
  CHECK(back.bytes_moved == 12);
}

TEST_CASE("text that is not valid UTF-8 does not end the conversation") {
  CHECK(parse_from_worker(to_line(Broken{1, "\xff\xfe broken", BreakCause::kShortage})));
}

TEST_CASE("nonsense is refused") {
  for (const char* line :
       {"", "{", "[]", "{}", "{\"type\":\"vote\"}", "{\"type\":\"dance\"}", "{\"type\":7}", "\xff"}) {
    INFO(line);
    CHECK_FALSE(parse_from_worker(line));
    CHECK_FALSE(parse_to_worker(line));
  }
}

TEST_CASE("an origin that no error has is refused") {
  CHECK(parse_from_worker(R"({"type":"refused","status":1,"origin":3,"options":""})"));
  for (const char* origin : {"4", "-1", "\"kInput\"", "null"}) {
    INFO(origin);
    CHECK_FALSE(
        parse_from_worker(R"({"type":"refused","status":1,"options":"","origin":)" + std::string(origin) + "}"));
  }
}

TEST_CASE("a message that nests deeper than any is refused before it is parsed") {
  CHECK(parse_from_worker(R"({"type":"hello","pid":1,"more":[[1]]})"));
  CHECK_FALSE(parse_from_worker(R"({"type":"hello","pid":1,"more":[[[1]]]})"));
  CHECK(parse_from_worker(R"({"type":"hello","pid":1,"more":"[[[["})"));
  CHECK(parse_from_worker(R"({"type":"hello","pid":1,"more":"\\\"[[[["})"));
}

TEST_CASE("the longest reason makes no message that its reader refuses") {
  Broken broken;
  broken.reason = std::string(size_t{4} << 20, '\x01');
  const std::string line = to_line(broken);
  CHECK(line.size() <= kLongestMessage);
  CHECK(parse_from_worker(line));
}

namespace {

/// Every kind of message, as it is made, is read as that kind, and says the same again.
template <class Variant, size_t I = 0, class Parse>
void check_kinds(const Parse& parse) {
  if constexpr (I < std::variant_size_v<Variant>) {
    const Variant made{std::in_place_index<I>};
    const std::string line = to_line(made);
    INFO(line);
    const auto heard = parse(line);
    REQUIRE(heard);
    CHECK(heard->index() == I);
    CHECK(to_line(*heard) == line);
    check_kinds<Variant, I + 1>(parse);
  }
}

}  // namespace

TEST_CASE("every kind of message is read as what it was") {
  check_kinds<FromWorker>(parse_from_worker);
  check_kinds<ToWorker>(parse_to_worker);
}
